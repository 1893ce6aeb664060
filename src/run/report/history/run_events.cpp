#include "src/run/report/history/run_events.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/text/short_number.h"
#include "src/run/report/history/run_files.h"

namespace temper {
namespace {

constexpr size_t kMaxEvents = 400;
constexpr int64_t kMaxLine = int64_t{1} << 20;

/// "2026-11-23T01:12:22": what comes behind it is cut off. Empty: it is no time.
std::string shown_time(const std::string& text) {
  return text.size() < 19 || text[10] != 'T' ? "" : text.substr(0, 10) + " " + text.substr(11, 8);
}

/// All that an event has besides its time and its name, and what is shown elsewhere.
std::string details(const Json& line) {
  std::string text;
  for (const auto& [key, value] : line.items())
    if (key != "time" && key != "event" && key != "prompt_frame")
      text += (text.empty() ? "" : ", ") + key + " " +
              (value.is_string() ? value.get<std::string>() : dump_json_line(value));
  return text;
}

/// A file, named from the run folder.
void for_each_line_of(const std::string& file, RunHistory& run,
                      const std::function<void(const std::string&)>& visit) {
  if (!may_be_read(run.folder, file, run.notes)) return;
  try {
    const LinesRead read = read_lines(join_path(run.folder, file), {.line = kMaxLine},
                                      [&](const std::string& line, int64_t) { visit(line); });
    if (!read.too_long.empty())
      run.notes.push_back(fmt::format("{} has {} of too many bytes, the first is line {}", file,
                                      count_text(std::ssize(read.too_long), "line"), read.too_long.front()));
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

void take_start(const std::string& text, RunHistory& run) try {
  const Json line = parse_json(text, "events.jsonl");
  if (line.at("event") != "start") return;
  const auto number = [&](const char* key) { return std::max<int64_t>(0, line.value(key, int64_t{0})); };
  const auto word = [&](const char* key) { return line.value(key, std::string()); };
  run.start = {shown_time(word("time")), word("dtype"),        word("device"),
               number("ranks"),          number("parameters"), number("lines")};
  const auto frame = line.find("prompt_frame");
  if (frame != line.end()) run.frame = {frame->at(0).get<std::string>(), frame->at(1).get<std::string>()};
} catch (const std::exception&) {  // the event itself is shown, or counted, where it can be
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

void read_events(RunHistory& run) {
  const std::string logs = join_path(run.folder, "logs");
  std::set<std::string> changes;  // the log warns of them, too
  if (!path_exists(join_path(run.folder, "events.jsonl")))
    run.notes.push_back("there is no events.jsonl: starts and stops are not shown");
  else
    for_each_line_of("events.jsonl", run, [&](const std::string& line) {
      take_start(line, run);
      std::optional<RunEvent> event = event_of(line);
      if (!event) return;
      if (event->kind == "changed") changes.insert(event->text);
      run.events.push_back(std::move(*event));
    });
  const bool readable = may_be_read(run.folder, "logs", run.notes) && is_directory(logs);
  for (const std::string& name : readable ? list_directory(logs) : std::vector<std::string>{})
    if (name.starts_with("rank-") && name.ends_with(".log"))
      for_each_line_of(join_path("logs", name), run, [&](const std::string& line) {
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
