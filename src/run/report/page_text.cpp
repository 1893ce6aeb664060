#include "src/run/report/page_text.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>

#include "src/core/text/answer_text.h"
#include "src/core/text/short_number.h"
#include "src/run/report/axis.h"
#include "src/run/report/html.h"
#include "src/run/report/page_charts.h"

namespace temper {
namespace {

// Bytes of all texts of samples together, and of one of them at most.
constexpr size_t kSampleBytes = 300'000, kMaxText = 3000, kMaxConfigText = 120'000;
// A run has so many of each.
constexpr size_t kMaxNotes = 20, kMaxChanges = 20, kMaxRows = 100, kMaxParts = 12;

std::string labelled(const char* label, std::string_view text, size_t bytes) {
  if (text.empty()) return "";
  return fmt::format("<div class=label>{}</div><pre>{}</pre>", label, html_of_at_most(text, bytes));
}

std::string sample_card(const Trajectory& t, const PromptFrame& frame, size_t bytes) {
  const size_t most = std::min(bytes / 3, kMaxText);
  std::string parts;
  for (size_t i = 0; i < std::min(t.reward_parts.size(), kMaxParts); ++i)
    parts += fmt::format("<span>{} {}</span>", html_of_at_most(t.reward_parts[i].first, 80),
                         short_value(t.reward_parts[i].second));
  if (t.reward_parts.size() > kMaxParts)
    parts += fmt::format("<span>and {} more</span>",
                         count_text(static_cast<int64_t>(t.reward_parts.size() - kMaxParts), "part"));
  const std::string reward = t.excluded ? "no reward" : "reward " + short_value(t.reward);
  return fmt::format(
      "<div class=card><div class=reward><b>{}</b>{}<span class=soft>{}, {}</span></div>"
      "{}{}{}</div>",
      reward, parts, count_text(std::ssize(t.response.tokens), "token"),
      finish_reason_name(t.response.finish), labelled("question", frame.question(t.prompt), most),
      labelled("response", t.response.text, most), labelled("answer", shown_answer(t.answer), most));
}

std::string step_samples(const StepSamples& step, const PromptFrame& frame, size_t bytes, bool open) {
  std::string cards, defect;
  for (const Trajectory& t : step.samples) cards += sample_card(t, frame, bytes);
  if (!step.defect.empty()) defect = fmt::format("<p class=notes>{}</p>", html_of_at_most(step.defect, 600));
  if (cards.empty() && defect.empty()) cards = "<p class=soft>No prompt was finished in this step.</p>";
  return fmt::format(
      "<details{}><summary>Step {} <span class=soft>({}{})</span></summary>{}<div "
      "class=grid>{}</div></details>",
      open ? " open" : "", step.step, step.whole ? "" : "the first ", count_text(step.groups, "prompt"),
      defect, cards);
}

/// "3 rows more are left out."
std::string left_out(size_t all, size_t shown, const char* what) {
  return all <= shown ? "" : fmt::format("<p class=soft>{} {} more are left out.</p>", all - shown, what);
}

std::string change_rows(const std::vector<ConfigChange>& changes, const std::string& head) {
  std::string text = "<div class=scroll><table><tr>" + head + "</tr>";
  for (size_t i = 0; i < std::min(changes.size(), kMaxRows); ++i) {
    const ConfigChange& change = changes[i];
    text += fmt::format("<tr><td class=k>{}</td><td class=\"w k\">{}</td><td class=\"w k\">{}</td></tr>",
                        html(change.key), html_of_at_most(change.before, kMaxText),
                        html_of_at_most(change.after, kMaxText));
  }
  return text + "</table></div>" + left_out(changes.size(), kMaxRows, "rows");
}

std::string config_of_run(const std::vector<RunHistory>& runs, size_t r) {
  const RunHistory& run = runs[r];
  std::string text;
  const size_t from = run.changes.size() - std::min(run.changes.size(), kMaxChanges);
  if (from > 0)
    text +=
        fmt::format("<p class=soft>{}: the {} oldest changes are left out.</p>", run_label(runs, r), from);
  for (size_t n = from; n < run.changes.size(); ++n)
    text += fmt::format("<h3>{}: change {}</h3>", run_label(runs, r), n + 1) +
            change_rows(run.changes[n], "<th>key<th>before<th>after");
  return text + fmt::format(
                    "<details><summary>{} <span class=soft>config.toml of the newest start</span></summary>"
                    "<div class=card><pre>{}</pre></div></details>",
                    run_label(runs, r), html_of_at_most(run.config_text, kMaxConfigText));
}

/// A row for each key in which any run differs from the first, a column for each run.
std::string differences(const std::vector<RunHistory>& runs) {
  std::map<std::string, std::vector<std::string>> rows;  // by key
  if (runs.size() < 2 || !runs[0].config) return "";
  for (size_t r = 1; r < runs.size(); ++r) {
    if (!runs[r].config) continue;
    for (const ConfigChange& change : config_changes(*runs[0].config, *runs[r].config)) {
      auto [at, fresh] = rows.emplace(change.key, std::vector<std::string>(runs.size(), change.before));
      at->second[r] = change.after;
    }
  }
  std::string head = "<tr><th>key", text;
  for (size_t r = 0; r < runs.size(); ++r) head += "<th>" + run_label(runs, r);
  for (const auto& [key, values] : rows) {
    text += fmt::format("<tr><td class=k>{}</td>", html(key));
    for (const std::string& value : values)
      text += fmt::format("<td class=\"w k\">{}</td>", html_of_at_most(value, kMaxText / runs.size()));
    text += "</tr>";
  }
  return fmt::format("<h3>The runs differ in {} keys</h3>", rows.size()) +
         (rows.empty() ? "" : "<div class=scroll><table>" + head + "</tr>" + text + "</table></div>");
}

}  // namespace

std::string notes_html(const std::vector<RunHistory>& runs) {
  std::string text;
  for (const RunHistory& run : runs) {
    for (size_t i = 0; i < std::min(run.notes.size(), kMaxNotes); ++i)
      text +=
          fmt::format("<p class=notes><b>{}</b>: {}</p>", html(run.name), html_of_at_most(run.notes[i], 600));
    text += left_out(run.notes.size(), kMaxNotes, "notes");
  }
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
      text += step_samples(step, runs[r].frame, kSampleBytes / count,
                           runs.size() == 1 && &step == &runs[r].samples.back());
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
  std::string text = "<h2 id=config>Config</h2>" + differences(runs);
  for (size_t r = 0; r < runs.size(); ++r)
    if (!runs[r].config_text.empty()) text += config_of_run(runs, r);
  return text;
}

}  // namespace temper
