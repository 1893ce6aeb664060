#include "src/run/report/page_head.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "src/config/units/duration.h"
#include "src/core/text/short_number.h"
#include "src/run/report/axis.h"
#include "src/run/report/history/run_state.h"
#include "src/run/report/html.h"
#include "src/run/report/page_charts.h"
#include "src/run/report/scores.h"

namespace temper {
namespace {

constexpr size_t kMaxTiles = 6, kPathBytes = 160;

/// The mean of the last steps, at most twenty: one step says little. NaN: none has a value.
double recent_mean(const MetricTable& table, const std::string& key) {
  const std::vector<double>* column = table.find(key);
  double sum = 0;
  int64_t count = 0;
  for (size_t i = column ? column->size() : 0; i-- > 0 && count < 20;)
    if (std::isfinite((*column)[i])) sum += (*column)[i], ++count;
  return count > 0 ? sum / static_cast<double>(count) : NAN;
}

double sum_of(const MetricTable& table, const std::string& key) {
  double sum = 0;
  if (const std::vector<double>* column = table.find(key))
    for (const double value : *column) sum += std::isfinite(value) ? value : 0;
  return sum;
}

std::string duration_text(double seconds) {
  const double unit = seconds < 3600 ? 1 : 60;
  return seconds < 1 ? "under 1s" : format_duration(std::max(1.0, std::round(seconds / unit) * unit));
}

int64_t steps_of(const RunHistory& run) { return run.config ? run.config->run.steps : 0; }

/// "about 3m20s": what the steps that are left will take; empty: unknown, or nothing is left.
std::string time_left(const RunHistory& run) {
  const double seconds =
      recent_mean(run.metrics, "perf/time_per_step") * static_cast<double>(steps_of(run) - run.last_step());
  return seconds > 0 && seconds < 1e9 ? "about " + duration_text(seconds) : "";
}

std::string stop_reason(const RunHistory& run) {
  for (size_t i = run.events.size(); i-- > 0;) {
    const std::string& text = run.events[i].text;
    if (run.events[i].kind != "stop") continue;
    const size_t at = text.find("reason ");
    return at == std::string::npos ? "" : " by " + text.substr(at + 7);
  }
  return "";
}

/// The first line of the newest error since the newest start.
std::string last_error(const RunHistory& run) {
  for (size_t i = run.events.size(); i-- > 0 && run.events[i].kind != "start";)
    if (run.events[i].kind == "error") return run.events[i].text.substr(0, run.events[i].text.find('\n'));
  return "";
}

std::string progress_text(const RunHistory& run) {
  if (!run.config) return fmt::format("step {}", run.last_step());
  return run.last_step() >= steps_of(run) && run.last_step() > 0
             ? "all " + count_text(run.last_step(), "step")
             : fmt::format("step {} of {}", run.last_step(), steps_of(run));
}

std::string state_text(const RunHistory& run) {
  const std::string left = time_left(run), progress = progress_text(run), error = last_error(run);
  switch (run.state) {
    case RunState::running:
      return progress + (left.empty() ? "" : ", " + left + " left");
    case RunState::stopped:
      return stop_reason(run).substr(std::min<size_t>(1, stop_reason(run).size())) + " at " + progress +
             (left.empty() ? "" : ", " + left + " left") + "; the same command goes on";
    case RunState::lost:
      return "at " + progress + (error.empty() ? ": its process is gone without a word" : ": " + error) +
             "; the same command goes on";
    case RunState::silent:
      return "at " + progress + ": nothing was written for an hour";
    default:
      return progress;
  }
}

std::string state_pill(const RunHistory& run) {
  const std::string name = run_state_name(run.state);
  return fmt::format("<span class=\"pill {}\">{}</span>", name.substr(0, name.find(' ')), name);
}

std::string data_text(const RunHistory& run) {
  if (!run.config) return "";
  std::string text;
  for (const DataSource& source : run.config->data.train) text += (text.empty() ? "" : ", ") + source.path;
  return text;
}

std::string batch_text(const RunHistory& run) {
  if (!run.config) return "";
  const Config& c = *run.config;
  if (c.algorithm.name == "sft")
    return c.train.samples_per_update ? count_text(*c.train.samples_per_update, "sample") : "";
  return fmt::format("{} x {}", count_text(c.rollout.prompts_per_step, "prompt"),
                     count_text(c.rollout.samples_per_prompt, "sample"));
}

std::string parameters_text(const RunHistory& run) {
  return run.start && run.start->parameters > 0 ? grouped_number(run.start->parameters) : "";
}

/// "2 on cpu, fp32".
std::string ranks_text(const RunHistory& run) {
  if (!run.start) return "";
  std::string text = run.start->ranks > 0 ? std::to_string(run.start->ranks) : "?";
  if (!run.start->device.empty()) text += " on " + run.start->device;
  return text + (run.start->dtype.empty() ? "" : ", " + run.start->dtype);
}

std::string first_start(const RunHistory& run) {
  for (const RunEvent& event : run.events)
    if (event.kind == "start") return event.time;
  return "";
}

/// When it ended or was stopped.
std::string last_end(const RunHistory& run) {
  if (run.state != RunState::ended && run.state != RunState::stopped) return "";
  for (size_t i = run.events.size(); i-- > 0;)
    if (run.events[i].kind == "end" || run.events[i].kind == "stop") return run.events[i].time;
  return "";
}

std::string starts_text(const RunHistory& run) {
  const auto starts = std::count_if(run.events.begin(), run.events.end(),
                                    [](const RunEvent& event) { return event.kind == "start"; });
  return starts > 1 && run.start ? fmt::format("{}, the newest {}", starts, run.start->time) : "";
}

std::string number_text(double value) { return std::isfinite(value) ? short_value(value) : ""; }

struct Fact {
  std::string label;
  std::string (*text)(const RunHistory&);
};
const Fact kWhat[] = {
    {"model", [](const RunHistory& r) { return r.config ? r.config->model.path : ""; }},
    {"parameters", parameters_text},
    {"algorithm", [](const RunHistory& r) { return r.config ? r.config->algorithm.name : ""; }},
    {"data", data_text},
    {"lines of data", [](const RunHistory& r) {
       return r.start && r.start->lines > 0 ? grouped_number(r.start->lines) : std::string();
     }}};
const Fact kHow[] = {
    {"batch", batch_text},
    {"ranks", ranks_text},
    {"since", first_start},
    {"until", last_end},
    {"starts", starts_text},
    {"time of its steps",
     [](const RunHistory& r) {
       const double seconds = sum_of(r.metrics, "perf/time_per_step");
       return seconds > 0 ? duration_text(seconds) : std::string();
     }},
    {"seconds a step",
     [](const RunHistory& r) { return number_text(recent_mean(r.metrics, "perf/time_per_step")); }},
    {"tokens/s of a rank",
     [](const RunHistory& r) { return number_text(recent_mean(r.metrics, "perf/throughput")); }},
};

std::string score_note(const Score& score) {
  return score.window > 1 ? fmt::format("means of {} steps", score.window) : "";
}

std::string tile(const Score& score) {
  const std::string note = score_note(score);
  return fmt::format(
      "<div class=tile><div class=k>{}</div><div class=now>{}</div><div class=soft>first {} (step {}), best "
      "{} "
      "(step {}){}</div></div>",
      html_of_at_most(score.key, kPathBytes), short_value(score.last.value), short_value(score.first.value),
      score.first.step, short_value(score.best.value), score.best.step, note.empty() ? "" : "; " + note);
}

std::string lead(const RunHistory& run) {
  if (!run.config) return "";
  const std::string size = parameters_text(run), lines = kWhat[4].text(run);
  return fmt::format("<p class=lead><b>{}</b> on <b>{}</b>{}, with <b>{}</b>{}.</p>",
                     html(run.config->algorithm.name), html_of_at_most(run.config->model.path, kPathBytes),
                     size.empty() ? "" : fmt::format(" ({} parameters)", size),
                     html_of_at_most(data_text(run), kPathBytes),
                     lines.empty() ? "" : fmt::format(" ({} lines)", lines));
}

std::string head_of_one(const std::vector<RunHistory>& runs) {
  const RunHistory& run = runs.front();
  std::string text = fmt::format("<h1>{} {}</h1>{}<p class=state>{}</p>", html(run.name), state_pill(run),
                                 lead(run), html_of_at_most(state_text(run), 600));
  const std::vector<Score> scores = scores_of(run.metrics);
  if (!scores.empty()) text += "<div class=tiles>";
  for (size_t i = 0; i < std::min(scores.size(), kMaxTiles); ++i) text += tile(scores[i]);
  if (!scores.empty()) text += "</div>";
  text += "<dl class=facts>";
  for (const Fact& fact : kHow)
    if (const std::string value = fact.text(run); !value.empty())
      text += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", fact.label, html(value));
  return text + "</dl>";
}

std::string table_row(const std::string& label, const std::vector<std::string>& cells) {
  if (std::all_of(cells.begin(), cells.end(), [](const std::string& cell) { return cell.empty(); }))
    return "";
  std::string row = "<tr><th>" + label;
  for (const std::string& cell : cells) row += "<td>" + cell + "</td>";
  return row + "</tr>";
}

std::string fact_row(const std::vector<RunHistory>& runs, const Fact& fact) {
  std::vector<std::string> cells;
  for (const RunHistory& run : runs) cells.push_back(html_of_at_most(fact.text(run), kPathBytes));
  return table_row(fact.label, cells);
}

/// A row for each score that any run has, in the order in which they come.
std::string score_rows(const std::vector<RunHistory>& runs) {
  std::vector<std::string> keys;
  std::vector<std::vector<Score>> all;
  for (const RunHistory& run : runs) {
    all.push_back(scores_of(run.metrics));
    for (const Score& score : all.back())
      if (std::find(keys.begin(), keys.end(), score.key) == keys.end()) keys.push_back(score.key);
  }
  std::string text;
  for (size_t k = 0; k < std::min(keys.size(), kMaxTiles); ++k) {
    std::vector<std::string> cells;
    for (const std::vector<Score>& scores : all) {
      const auto at =
          std::find_if(scores.begin(), scores.end(), [&](const Score& s) { return s.key == keys[k]; });
      cells.push_back(at == scores.end()
                          ? ""
                          : fmt::format("<b>{}</b> <span class=soft>first {}, best {} (step {})</span>",
                                        short_value(at->last.value), short_value(at->first.value),
                                        short_value(at->best.value), at->best.step));
    }
    text += table_row("<span class=k>" + html_of_at_most(keys[k], kPathBytes) + "</span>", cells);
  }
  return text;
}

std::string head_of_several(const std::vector<RunHistory>& runs) {
  std::string text = fmt::format(
      "<h1>{} runs side by side</h1><div class=scroll><table class=runs><tr><th>run", runs.size());
  std::vector<std::string> states;
  for (size_t r = 0; r < runs.size(); ++r) {
    text += fmt::format("<th>{}", run_label(runs, r));
    states.push_back(state_pill(runs[r]) + " " + html_of_at_most(state_text(runs[r]), 300));
  }
  text += "</tr>" + table_row("state", states) + score_rows(runs);
  for (const Fact& fact : kWhat) text += fact_row(runs, fact);
  for (const Fact& fact : kHow) text += fact_row(runs, fact);
  return text +
         "</table></div><p class=soft>Scores and losses of training are means over neighbouring steps; "
         "speed is the mean of the last 20 steps.</p>";
}

}  // namespace

std::string page_head(const std::vector<RunHistory>& runs) {
  return runs.size() == 1 ? head_of_one(runs) : head_of_several(runs);
}

}  // namespace temper
