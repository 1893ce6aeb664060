#include "src/run/report/page_charts.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "src/run/report/axis.h"
#include "src/run/report/chart.h"
#include "src/run/report/html.h"
#include "src/run/report/metric_cards.h"

namespace temper {
namespace {

// Bytes of all charts together, about: pages that phones open, whatever a run measures.
constexpr int64_t kChartBytes = 1'400'000, kBytesAround = 1500;  // of a chart, besides curves and readouts
constexpr int64_t kBins = 120;
constexpr size_t kMaxNames = 60, kNameBytes = 120;
constexpr std::string_view kTiming = "timing_s/";
// In the order of a step; the last colour is for what is in no phase.
constexpr std::array<std::string_view, 9> kPhases{
    "gen",          "reward",          "ref",       "old_log_prob", "adv",
    "update_actor", "save_checkpoint", "export_hf", "sync_weights"};

StepRange range_of(const std::vector<RunHistory>& runs) {
  StepRange range{INFINITY, -INFINITY};
  for (const RunHistory& run : runs) {
    if (run.metrics.steps.empty()) continue;
    range.first = std::min(range.first, static_cast<double>(run.metrics.steps.front()));
    range.last = std::max(range.last, static_cast<double>(run.metrics.steps.back()));
  }
  return range.first <= range.last ? range : StepRange{};
}

double last_value(const std::vector<double>& column) {
  for (size_t i = column.size(); i-- > 0;)
    if (std::isfinite(column[i])) return column[i];
  return NAN;
}

/// What a chart may have, where there are so many.
struct Budget {
  int64_t columns = kChartColumns, means = 120, readouts = 60;
};
Budget budget_of(size_t charts, size_t runs) {
  const auto each = kChartBytes / static_cast<int64_t>(std::max<size_t>(1, charts)) - kBytesAround,
             curves = static_cast<int64_t>(runs);
  return {std::clamp<int64_t>(each * 45 / 100 / (22 * curves), 24, kChartColumns),
          std::clamp<int64_t>(each * 15 / 100 / (11 * curves), 24, 120),
          std::clamp<int64_t>(each * 40 / 100 / (110 + 45 * curves), 10, 60)};
}

LineChart line_chart(const std::vector<RunHistory>& runs, const ChartMetric& metric, const Budget& budget) {
  LineChart chart{metric.key, metric.unit, {}, {}, budget.columns, budget.means, budget.readouts};
  for (size_t r = 0; r < runs.size(); ++r) {
    const std::vector<double>* column = runs[r].metrics.find(metric.key);
    if (!column) continue;
    chart.curves.push_back({r, runs[r].name, curve_of(runs[r].metrics.steps, *column)});
    for (const RunEvent& event : runs[r].events)
      if (event.kind == "resume" && event.step > 0 && event.step <= runs[r].last_step())
        chart.marks.push_back({r, event.step});
  }
  return chart;
}

/// "a, b and 3 more"; `value` may add to a name.
template <typename Value>
std::string names_html(const std::vector<std::string>& names, const Value& value) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxNames); ++i)
    text += fmt::format("{}<code>{}</code>{}", i == 0 ? "" : ", ", html_of_at_most(names[i], kNameBytes),
                        value(names[i]));
  return names.size() <= kMaxNames ? text : text + fmt::format(" and {} more", names.size() - kMaxNames);
}
std::string names_html(const std::vector<std::string>& names) {
  return names_html(names, [](const std::string&) { return ""; });
}

std::string figure(const std::vector<RunHistory>& runs, const MetricCard& card, const StepRange& range,
                   const Budget& budget) {
  const std::string& key = card.metric.key;
  std::string text = fmt::format("<figure><figcaption><b class=k>{}</b>", html_of_at_most(key, kNameBytes));
  if (const std::string_view help = metric_help(key); !help.empty())
    text += fmt::format("<small>{}</small>", html(help));
  if (!card.equal.empty()) text += "<small>the same: " + names_html(card.equal) + "</small>";
  text += "<div class=last>";
  for (size_t r = 0; r < runs.size(); ++r)
    if (const std::vector<double>* column = runs[r].metrics.find(key))
      text += fmt::format("<span><i class=\"sw r{}\"></i>{} {}</span>", r,
                          runs.size() > 1 ? html_of_at_most(runs[r].name, 40) : "last",
                          short_value(last_value(*column)));
  return text + "</div></figcaption>" + chart_svg(line_chart(runs, card.metric, budget), range) + "</figure>";
}

/// " 1" of a run, " 1 / 2" of several.
std::string constant_value(const std::vector<RunHistory>& runs, const std::string& key) {
  std::string text;
  for (const RunHistory& run : runs) {
    const std::vector<double>* column = run.metrics.find(key);
    text += (text.empty() ? " " : " / ") + (column ? short_value(last_value(*column)) : "–");
  }
  return text;
}

/// Whether no run has more than one value of it.
bool is_single(const std::vector<RunHistory>& runs, const std::string& key) {
  return std::all_of(runs.begin(), runs.end(), [&](const RunHistory& run) {
    const std::vector<double>* column = run.metrics.find(key);
    return !column ||
           std::count_if(column->begin(), column->end(), [](double v) { return std::isfinite(v); }) < 2;
  });
}

bool is_zero(const std::vector<RunHistory>& runs, const std::string& key) {
  return std::all_of(runs.begin(), runs.end(), [&](const RunHistory& run) {
    const std::vector<double>* column = run.metrics.find(key);
    return !column || last_value(*column) == 0;
  });
}

std::string constants_html(const std::vector<RunHistory>& runs, const std::vector<std::string>& keys) {
  std::vector<std::string> zeros, single, others;
  for (const std::string& key : keys)
    (is_single(runs, key) ? single : is_zero(runs, key) ? zeros : others).push_back(key);
  const auto value = [&](const std::string& key) { return constant_value(runs, key); };
  const auto line = [](const char* said, const std::string& names) {
    return names.empty() ? "" : fmt::format("<p class=\"soft n\">{}: {}</p>", said, names);
  };
  return line("At one step alone", names_html(single, value)) +
         line("The same in every step", names_html(others, value)) +
         line("0 in every step", names_html(zeros));
}

std::string group_html(const std::vector<RunHistory>& runs, const CardGroup& group, const StepRange& range,
                       const Budget& budget) {
  std::string figures;
  for (const MetricCard& card : group.cards) figures += figure(runs, card, range, budget);
  const std::string text =
      (figures.empty() ? "" : "<div class=grid>" + figures + "</div>") + constants_html(runs, group.constant);
  if (text.empty()) return "";
  if (group.title != "Other metrics") return fmt::format("<h2>{}</h2>{}", html(group.title), text);
  return fmt::format("<details><summary>{} <span class=soft>({} charts)</span></summary>{}</details>",
                     html(group.title), group.cards.size(), text);
}

struct Phase {
  std::string name;
  size_t colour = 0;
  std::vector<double> seconds;  // of each step
};

double or_zero(double value) { return std::isfinite(value) ? value : 0; }

/// From the bottom up; what a step has beyond its phases is the last one.
std::vector<Phase> phases_of(const MetricTable& table) {
  std::vector<Phase> phases;
  const std::vector<double>* step = table.find("timing_s/step");
  if (!step) return phases;
  std::vector<double> rest = *step;
  for (size_t p = 0; p < kPhases.size(); ++p) {
    const std::vector<double>* column = table.find(std::string(kTiming) + std::string(kPhases[p]));
    if (!column) continue;
    phases.push_back({std::string(kPhases[p]), p, *column});
    for (size_t i = 0; i < rest.size(); ++i) rest[i] -= or_zero((*column)[i]);
  }
  for (double& seconds : rest) seconds = std::max(seconds, 0.0);
  phases.push_back({"other", kPhases.size(), rest});
  return phases;
}

std::string phase_table(const std::vector<Phase>& phases, const std::vector<double>& step) {
  const auto sum = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0,
                           [](double all, double value) { return all + or_zero(value); });
  };
  const double whole = sum(step), steps = static_cast<double>(step.size());
  std::string text = "<div class=legend>";
  for (const Phase& phase : phases) {
    const double seconds = sum(phase.seconds);
    if (seconds <= 0) continue;
    text += fmt::format("<span><i class=\"sw p{}\"></i>{} <span class=soft>{} s, {:.1f} %</span></span>",
                        phase.colour, html(phase.name), short_value(seconds / steps),
                        whole > 0 ? 100 * seconds / whole : 0);
  }
  return text + "</div>";
}

std::string phase_figure(const std::vector<RunHistory>& runs, size_t run, const StepRange& range) {
  const MetricTable& table = runs[run].metrics;
  const std::vector<Phase> phases = phases_of(table);
  if (phases.empty()) return "";
  const double first = range.first - 0.5, last = range.last + 0.5;
  const int64_t most = std::max<int64_t>(40, 2 * kBins / static_cast<int64_t>(runs.size()));
  const int64_t bins = std::min({kBins, most, static_cast<int64_t>(range.last - range.first) + 1});
  StackChart chart{"seconds of a step by phase, " + runs[run].name, "seconds a step", {}, {}};
  for (const Phase& phase : phases)
    chart.layers.push_back(
        {phase.name, phase.colour, bin_means(table.steps, phase.seconds, first, last, bins)});
  const std::vector<double>& step = *table.find("timing_s/step");
  chart.line = bin_means(table.steps, step, first, last, bins);
  return fmt::format("<figure><figcaption>{}</figcaption>{}{}</figure>", run_label(runs, run),
                     phase_table(phases, step), chart_svg(chart, range));
}

}  // namespace

std::string run_label(const std::vector<RunHistory>& runs, size_t run) {
  return fmt::format("<span class=n><i class=\"sw r{}\"></i>{}</span>", run, html(runs[run].name));
}

std::string metric_sections(const std::vector<RunHistory>& runs) {
  const StepRange range = range_of(runs);
  const MetricCards cards = metric_cards(runs);
  const Budget budget = budget_of(cards.drawn, runs.size());
  if (range.first == range.last && cards.drawn == 0 && cards.groups.empty()) return "";
  std::string text =
      "<p class=soft>Thin: the values, of every column of pixels the least and the greatest. Bold: means "
      "over "
      "neighbouring steps. Point at a curve for its values. It has gaps where steps have none; dotted lines: "
      "a run was resumed there.</p>";
  for (const CardGroup& group : cards.groups) text += group_html(runs, group, range, budget);
  if (!cards.left_out.empty())
    text += fmt::format(
        "<p class=notes>{} metrics more than the {} that are drawn: {}. <code>--csv</code> has them.</p>",
        cards.left_out.size(), kMaxCards, names_html(cards.left_out));
  return text;
}

std::string phase_section(const std::vector<RunHistory>& runs) {
  const StepRange range = range_of(runs);
  std::string figures;
  for (size_t r = 0; r < runs.size(); ++r) figures += phase_figure(runs, r, range);
  if (figures.empty()) return "";
  return "<h2 id=phases>Where the time of a step goes</h2><p class=soft>Mean seconds of the steps in each "
         "column; the line is the whole step. Phases of ranks with different roles run beside each other, "
         "and "
         "a save comes after its step: they may add up to more than it.</p><div class=grid>" +
         figures + "</div>";
}

}  // namespace temper
