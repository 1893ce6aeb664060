#include "src/run/report/page_charts.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "src/run/report/axis.h"
#include "src/run/report/chart.h"
#include "src/run/report/chart_groups.h"
#include "src/run/report/html.h"

namespace temper {
namespace {

// Limits of all curves together: pages that phones open, whatever a run measures.
constexpr int64_t kCurveBytes = 1'000'000, kBytesAColumn = 22, kLeastColumns = 24;
constexpr int64_t kBins = 170;
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

std::vector<std::string> all_keys(const std::vector<RunHistory>& runs) {
  std::set<std::string> keys;
  for (const RunHistory& run : runs)
    for (const auto& [key, column] : run.metrics.columns) keys.insert(key);
  return {keys.begin(), keys.end()};
}

bool is_zero(const std::vector<RunHistory>& runs, const std::string& key) {
  for (const RunHistory& run : runs)
    if (const std::vector<double>* column = run.metrics.find(key))
      if (std::any_of(column->begin(), column->end(), [](double v) { return std::isfinite(v) && v != 0; }))
        return false;
  return true;
}

double last_value(const std::vector<double>& column) {
  for (size_t i = column.size(); i-- > 0;)
    if (std::isfinite(column[i])) return column[i];
  return NAN;
}

LineChart line_chart(const std::vector<RunHistory>& runs, const ChartMetric& metric, int64_t columns) {
  LineChart chart{metric.key, metric.unit, {}, {}, columns};
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

std::string figure(const std::vector<RunHistory>& runs, const ChartMetric& metric, const StepRange& range,
                   int64_t columns) {
  std::string text = fmt::format("<figure><figcaption><b class=k>{}</b>", html(metric.key));
  if (const std::string_view help = metric_help(metric.key); !help.empty())
    text += fmt::format("<small>{}</small>", html(help));
  text += "<div class=last>";
  for (size_t r = 0; r < runs.size(); ++r)
    if (const std::vector<double>* column = runs[r].metrics.find(metric.key))
      text += fmt::format("<span><i class=\"sw r{}\"></i>{} {}</span>", r,
                          runs.size() > 1 ? html_of_at_most(runs[r].name, 40) : "last",
                          short_value(last_value(*column)));
  return text + "</div></figcaption>" + chart_svg(line_chart(runs, metric, columns), range) + "</figure>";
}

std::string group_html(const std::vector<RunHistory>& runs, const ChartGroup& group, const StepRange& range,
                       int64_t columns) {
  std::string figures, zeros;
  size_t drawn = 0;
  for (const ChartMetric& metric : group.metrics) {
    if (is_zero(runs, metric.key)) {
      zeros += fmt::format("{}<code>{}</code>", zeros.empty() ? "" : ", ", html(metric.key));
    } else {
      figures += figure(runs, metric, range, columns);
      ++drawn;
    }
  }
  std::string text = figures.empty() ? "" : "<div class=grid>" + figures + "</div>";
  if (!zeros.empty()) text += "<p class=\"soft n\">0 in every step: " + zeros + "</p>";
  if (group.title != "Other metrics") return fmt::format("<h2>{}</h2>{}", html(group.title), text);
  return fmt::format("<details><summary>{} <span class=soft>({} charts)</span></summary>{}</details>",
                     html(group.title), drawn, text);
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
  const int64_t bins = std::min<int64_t>(kBins, static_cast<int64_t>(range.last - range.first) + 1);
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
  const std::vector<std::string> keys = all_keys(runs);
  const StepRange range = range_of(runs);
  const auto curves = static_cast<int64_t>(std::max<size_t>(1, keys.size() * runs.size()));
  const int64_t columns = std::clamp(kCurveBytes / (curves * kBytesAColumn), kLeastColumns, kChartColumns);
  std::string text =
      "<p class=soft>Of every column of pixels a curve shows the least and the greatest value; the numbers "
      "above it are the newest. It has gaps where steps have no value; dotted lines: a run was resumed "
      "there.</p>";
  for (const ChartGroup& group : chart_groups(keys)) text += group_html(runs, group, range, columns);
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
