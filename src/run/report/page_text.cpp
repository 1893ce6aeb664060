#include "src/run/report/page_text.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "src/core/text/answer_text.h"
#include "src/run/report/axis.h"
#include "src/run/report/html.h"
#include "src/run/report/page_charts.h"

namespace temper {
namespace {

// Bytes of all texts of samples together, and of one of them at most.
constexpr size_t kSampleBytes = 300'000, kMaxText = 3000, kMaxConfigText = 120'000;

double last_value(const MetricTable& table, const std::string& key) {
  const std::vector<double>* column = table.find(key);
  for (size_t i = column ? column->size() : 0; i-- > 0;)
    if (std::isfinite((*column)[i])) return (*column)[i];
  return NAN;
}

/// The mean of the last steps, at most twenty: one step says little.
double recent_mean(const MetricTable& table, const std::string& key) {
  const std::vector<double>* column = table.find(key);
  double sum = 0;
  int64_t count = 0;
  for (size_t i = column ? column->size() : 0; i-- > 0 && count < 20;)
    if (std::isfinite((*column)[i])) sum += (*column)[i], ++count;
  return count > 0 ? sum / static_cast<double>(count) : NAN;
}

std::string first_validation(const MetricTable& table) {
  for (const auto& [key, column] : table.columns)
    if (key.starts_with("val/") && key.ends_with("/score/mean")) return key;
  return "";
}

// Columns of the table of runs; on a phone each number has its name beside it.
constexpr std::array<std::string_view, 7> kOverview{
    "algorithm", "steps", "score", "validation", "s a step", "tokens/s of a rank", "starts"};

std::string overview_row(const std::vector<RunHistory>& runs, size_t r) {
  const RunHistory& run = runs[r];
  const std::string of = run.config ? fmt::format(" of {}", run.config->run.steps) : "";
  const auto starts = std::count_if(run.events.begin(), run.events.end(),
                                    [](const RunEvent& event) { return event.kind == "start"; });
  const auto number = [](double value) { return html(short_value(value)); };
  const std::array<std::string, kOverview.size()> cells{
      run.config ? html(run.config->algorithm.name) : "",
      fmt::format("{}{}", run.last_step(), of),
      number(recent_mean(run.metrics, "critic/score/mean")),
      number(last_value(run.metrics, first_validation(run.metrics))),
      number(recent_mean(run.metrics, "perf/time_per_step")),
      number(recent_mean(run.metrics, "perf/throughput")),
      starts > 0 ? std::to_string(starts) : ""};
  std::string row = fmt::format("<tr><td>{}</td>", run_label(runs, r));
  for (size_t i = 0; i < cells.size(); ++i)
    row += fmt::format("<td class=num data-of=\"{}\">{}</td>", kOverview[i], cells[i]);
  return row + "</tr>";
}

std::string sample_card(const Trajectory& t, size_t bytes) {
  const size_t most = std::min(bytes / 3, kMaxText);
  std::string parts;
  for (const auto& [name, value] : t.reward_parts)
    parts += fmt::format("<span>{} {}</span>", html(name), short_value(value));
  const std::string reward = t.excluded ? "no reward" : "reward " + short_value(t.reward);
  return fmt::format(
      "<div class=card><div class=reward><b>{}</b>{}<span class=soft>{} tokens, {}</span></div>"
      "<div class=label>prompt</div><pre>{}</pre><div class=label>response</div><pre>{}</pre>"
      "<div class=label>answer</div><pre>{}</pre></div>",
      reward, parts, t.response.tokens.size(), finish_reason_name(t.response.finish),
      html_of_at_most(t.prompt, most), html_of_at_most(t.response.text, most),
      html_of_at_most(shown_answer(t.answer), most));
}

std::string step_samples(const StepSamples& step, size_t bytes, bool open) {
  std::string cards;
  for (const Trajectory& t : step.samples) cards += sample_card(t, bytes);
  if (!step.defect.empty()) cards = fmt::format("<p class=notes>{}</p>", html(step.defect));
  if (cards.empty()) cards = "<p class=soft>No prompt was finished in this step.</p>";
  return fmt::format(
      "<details{}><summary>Step {} <span class=soft>({} prompts)</span></summary><div "
      "class=grid>{}</div></details>",
      open ? " open" : "", step.step, step.groups, cards);
}

std::string change_rows(const std::vector<ConfigChange>& changes, const std::string& head) {
  std::string text = "<div class=scroll><table><tr>" + head + "</tr>";
  for (const ConfigChange& change : changes)
    text += fmt::format("<tr><td class=k>{}</td><td class=\"w k\">{}</td><td class=\"w k\">{}</td></tr>",
                        html(change.key), html_of_at_most(change.before, kMaxText),
                        html_of_at_most(change.after, kMaxText));
  return text + "</table></div>";
}

std::string config_of_run(const std::vector<RunHistory>& runs, size_t r) {
  const RunHistory& run = runs[r];
  std::string text;
  for (size_t n = 0; n < run.changes.size(); ++n)
    text += fmt::format("<h3>{}: change {}</h3>", run_label(runs, r), n + 1) +
            change_rows(run.changes[n], "<th>key<th>before<th>after");
  return text + fmt::format(
                    "<details><summary>{} <span class=soft>config.toml of the newest start</span></summary>"
                    "<div class=card><pre>{}</pre></div></details>",
                    run_label(runs, r), html_of_at_most(run.config_text, kMaxConfigText));
}

}  // namespace

std::string overview_table(const std::vector<RunHistory>& runs) {
  std::string text = "<div class=scroll><table class=runs><tr><th>run";
  for (const std::string_view column : kOverview) text += fmt::format("<th class=num>{}", column);
  text += "</tr>";
  for (size_t r = 0; r < runs.size(); ++r) text += overview_row(runs, r);
  return text +
         "</table></div><p class=soft>Score and speed: mean of the last 20 steps. Validation: the "
         "newest.</p>";
}

std::string notes_html(const std::vector<RunHistory>& runs) {
  std::string text;
  for (const RunHistory& run : runs)
    for (const std::string& note : run.notes)
      text += fmt::format("<p class=notes><b>{}</b>: {}</p>", html(run.name), html(note));
  return text;
}

std::string sample_section(const std::vector<RunHistory>& runs) {
  size_t count = 1;
  for (const RunHistory& run : runs)
    for (const StepSamples& step : run.samples) count += step.samples.size();
  std::string text;
  for (size_t r = 0; r < runs.size(); ++r) {
    if (runs[r].samples.empty()) continue;
    if (runs.size() > 1) text += fmt::format("<h3>{}</h3>", run_label(runs, r));
    for (const StepSamples& step : runs[r].samples)
      text += step_samples(step, kSampleBytes / count, runs.size() == 1 && &step == &runs[r].samples.back());
  }
  if (text.empty()) return "";
  return "<h2 id=samples>Samples</h2><p class=soft>Of steps spread over the run, of prompts spread over each "
         "step: the best and the worst response.</p>" +
         text;
}

std::string event_section(const std::vector<RunHistory>& runs) {
  std::string text;
  for (size_t r = 0; r < runs.size(); ++r) {
    if (runs[r].events.empty()) continue;
    if (runs.size() > 1) text += fmt::format("<h3>{}</h3>", run_label(runs, r));
    text += "<div class=scroll><table class=events><tr><th>time<th>what<th></tr>";
    for (const RunEvent& event : runs[r].events)
      text += fmt::format("<tr class={0}><td class=time>{1}</td><td>{0}</td><td class=w>{2}</td></tr>",
                          event.kind, html(event.time), html_of_at_most(event.text, 600));
    text += "</table></div>";
    if (runs[r].events_left_out > 0)
      text += fmt::format("<p class=soft>{} more in the middle are left out.</p>", runs[r].events_left_out);
  }
  return text.empty() ? "" : "<h2 id=starts>Starts and stops</h2>" + text;
}

std::string config_section(const std::vector<RunHistory>& runs) {
  std::string text = "<h2 id=config>Config</h2>";
  for (size_t r = 1; r < runs.size(); ++r) {
    if (!runs[0].config || !runs[r].config) continue;
    const std::vector<ConfigChange> differences = config_changes(*runs[0].config, *runs[r].config);
    text += fmt::format("<h3>{} and {} differ in {} keys</h3>", run_label(runs, 0), run_label(runs, r),
                        differences.size());
    if (!differences.empty())
      text += change_rows(differences,
                          fmt::format("<th>key<th>{}<th>{}", run_label(runs, 0), run_label(runs, r)));
  }
  for (size_t r = 0; r < runs.size(); ++r)
    if (!runs[r].config_text.empty()) text += config_of_run(runs, r);
  return text;
}

}  // namespace temper
