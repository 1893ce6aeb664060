#include "src/run/report/run_events.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/text/file_lines.h"

namespace temper {
namespace {

constexpr size_t kMaxEvents = 400;
constexpr int64_t kMaxLine = int64_t{16} << 20;

/// "2026-11-23T01:12:22": what comes behind it is cut off. Empty: it is no time.
std::string shown_time(const std::string& text) {
  return text.size() < 19 || text[10] != 'T' ? "" : text.substr(0, 10) + " " + text.substr(11, 8);
}

/// All that an event has besides its time and its name.
std::string details(const Json& line) {
  std::string text;
  for (const auto& [key, value] : line.items())
    if (key != "time" && key != "event")
      text += (text.empty() ? "" : ", ") + key + " " +
              (value.is_string() ? value.get<std::string>() : dump_json_line(value));
  return text;
}

void for_each_line_of(const std::string& file, RunHistory& run,
                      const std::function<void(const std::string&)>& visit) {
  try {
    for_each_line(file, kMaxLine, [&](const std::string& line, int64_t) { visit(line); });
  } catch (const Error& e) {
    run.notes.push_back(fmt::format("{} cannot be read: {}", file, e.problem().why));
  }
}

}  // namespace

std::optional<RunEvent> event_of(const std::string& text) try {
  static constexpr std::array<std::string_view, 5> kShown{"start", "resume", "changed", "stop", "end"};
  const Json line = parse_json(text, "events.jsonl");
  RunEvent event{line.at("event").get<std::string>(), shown_time(line.at("time").get<std::string>()),
                 details(line), 0};
  if (event.time.empty() || std::find(kShown.begin(), kShown.end(), event.kind) == kShown.end())
    return std::nullopt;
  if (event.kind == "resume") event.step = line.at("step").get<int64_t>();
  if (event.kind == "changed")
    event.text = ConfigChange{line.at("key"), line.at("before"), line.at("after")}.text();
  return event;
} catch (const std::exception&) {
  return std::nullopt;
}

std::optional<RunEvent> trouble_of(const std::string& line) {
  std::array<std::string, 4> words;  // time, "rank", its number, level
  size_t at = 0;
  for (std::string& word : words) {
    const size_t end = line.find(' ', at);
    if (end == std::string::npos) return std::nullopt;
    word = line.substr(at, end - at);
    at = end + 1;
  }
  const std::string time = shown_time(words[0]), &level = words[3];
  const bool warning = level == "warning" || level == "warn", error = level == "error" || level == "critical";
  if (words[1] != "rank" || time.empty() || (!warning && !error)) return std::nullopt;
  return RunEvent{warning ? "warning" : "error", time, line.substr(at), 0};
}

void read_events(const std::string& folder, RunHistory& run) {
  const std::string events = join_path(folder, "events.jsonl"), logs = join_path(folder, "logs");
  std::set<std::string> changes;  // the log warns of them, too
  if (!path_exists(events))
    run.notes.push_back("there is no events.jsonl: starts and stops are not shown");
  else
    for_each_line_of(events, run, [&](const std::string& line) {
      std::optional<RunEvent> event = event_of(line);
      if (!event) return;
      if (event->kind == "changed") changes.insert(event->text);
      run.events.push_back(std::move(*event));
    });
  for (const std::string& name : is_directory(logs) ? list_directory(logs) : std::vector<std::string>{})
    if (name.starts_with("rank-") && name.ends_with(".log"))
      for_each_line_of(join_path(logs, name), run, [&](const std::string& line) {
        std::optional<RunEvent> trouble = trouble_of(line);
        if (!trouble) return;
        const size_t colon = trouble->text.find(": ");
        const bool told = colon != std::string::npos && changes.contains(trouble->text.substr(colon + 2));
        if (!told) run.events.push_back(std::move(*trouble));
      });
  std::stable_sort(run.events.begin(), run.events.end(),
                   [](const RunEvent& a, const RunEvent& b) { return a.time < b.time; });
  if (run.events.size() <= kMaxEvents) return;
  run.events_left_out = static_cast<int64_t>(run.events.size() - kMaxEvents);
  const auto middle = run.events.begin() + kMaxEvents / 2;
  run.events.erase(middle, middle + run.events_left_out);
}

}  // namespace temper
