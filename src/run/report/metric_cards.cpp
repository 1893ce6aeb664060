#include "src/run/report/metric_cards.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace temper {
namespace {

std::vector<std::string> all_keys(const std::vector<RunHistory>& runs) {
  std::set<std::string> keys;
  for (const RunHistory& run : runs)
    for (const auto& [key, column] : run.metrics.columns) keys.insert(key);
  return {keys.begin(), keys.end()};
}

bool is_constant(const std::vector<double>& column) {
  double value = NAN;
  for (const double v : column) {
    if (!std::isfinite(v)) continue;
    if (std::isfinite(value) && v != value) return false;
    value = v;
  }
  return true;
}

bool alike(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (!std::isfinite(x) && !std::isfinite(y)); });
}

bool is_constant(const std::vector<RunHistory>& runs, const std::string& key) {
  return std::all_of(runs.begin(), runs.end(), [&](const RunHistory& run) {
    const std::vector<double>* column = run.metrics.find(key);
    return !column || is_constant(*column);
  });
}

bool alike(const std::vector<RunHistory>& runs, const std::string& a, const std::string& b) {
  return std::all_of(runs.begin(), runs.end(), [&](const RunHistory& run) {
    const std::vector<double>*one = run.metrics.find(a), *other = run.metrics.find(b);
    return one && other ? alike(*one, *other) : one == other;
  });
}

}  // namespace

MetricCards metric_cards(const std::vector<RunHistory>& runs) {
  MetricCards all;
  const std::vector<ChartGroup> groups = chart_groups(all_keys(runs));
  all.groups.reserve(groups.size());
  std::vector<MetricCard*> drawn;
  for (const ChartGroup& group : groups) {
    CardGroup& cards = all.groups.emplace_back(CardGroup{group.title, {}, {}});
    cards.cards.reserve(group.metrics.size());
    for (const ChartMetric& metric : group.metrics) {
      const auto same = std::find_if(drawn.begin(), drawn.end(), [&](const MetricCard* card) {
        return alike(runs, card->metric.key, metric.key);
      });
      if (is_constant(runs, metric.key))
        cards.constant.push_back(metric.key);
      else if (same != drawn.end())
        (*same)->equal.push_back(metric.key);
      else if (drawn.size() == kMaxCards)
        all.left_out.push_back(metric.key);
      else
        drawn.push_back(&cards.cards.emplace_back(MetricCard{metric, {}}));
    }
  }
  all.drawn = drawn.size();
  return all;
}

}  // namespace temper
