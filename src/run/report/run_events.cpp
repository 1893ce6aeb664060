#include "src/run/report/run_events.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/text/file_lines.h"

namespace temper {
namespace {

constexpr size_t kMaxEvents = 400;
constexpr int64_t kMaxLine = int64_t{16} << 20;

/// "resumed from PATH, step 12": 12.
int64_t resumed_step(const std::string& message) {
  static constexpr std::string_view kStep = ", step ";
  const size_t at = message.rfind(kStep);
  int64_t step = 0;
  if (at != std::string::npos) {
    const char* digits = message.data() + at + kStep.size();
    std::from_chars(digits, message.data() + message.size(), step);
  }
  return std::max<int64_t>(step, 0);
}

std::optional<RunEvent::Kind> kind_of(const std::string& level, const std::string& message) {
  using Kind = RunEvent::Kind;
  if (message.starts_with("changed since: ")) return Kind::change;
  if (level == "warning" || level == "warn") return Kind::warning;
  if (level == "error" || level == "critical") return Kind::error;
  if (level != "info") return std::nullopt;
  if (message.starts_with("resumed from ")) return Kind::resumed;
  if (message.find("; run the same command again") != std::string::npos) return Kind::stop;
  if (message.find(" parameters, ") != std::string::npos &&
      message.find(" updates in all; ") != std::string::npos)
    return Kind::start;
  return std::nullopt;
}

}  // namespace

std::optional<RunEvent> event_of(const std::string& line) {
  std::array<std::string, 4> words;  // time, "rank", its number, level
  size_t at = 0;
  for (std::string& word : words) {
    const size_t end = line.find(' ', at);
    if (end == std::string::npos) return std::nullopt;
    word = line.substr(at, end - at);
    at = end + 1;
  }
  if (words[1] != "rank" || words[0].size() < 19 || words[0][10] != 'T') return std::nullopt;
  const std::string message = line.substr(at);
  const std::optional<RunEvent::Kind> kind = kind_of(words[3], message);
  if (!kind) return std::nullopt;
  RunEvent event{*kind, words[0].substr(0, 19), message, 0};
  std::replace(event.time.begin(), event.time.end(), 'T', ' ');
  if (*kind == RunEvent::Kind::resumed) event.step = resumed_step(message);
  return event;
}

void read_events(const std::string& folder, RunHistory& run) {
  const std::string logs = join_path(folder, "logs");
  if (!is_directory(logs)) return;
  std::string teller;  // the first log with a start: other ranks say the same again
  for (const std::string& name : list_directory(logs)) {
    if (!name.starts_with("rank-") || !name.ends_with(".log")) continue;
    try {
      for_each_line(join_path(logs, name), kMaxLine, [&](const std::string& line, int64_t) {
        std::optional<RunEvent> event = event_of(line);
        if (!event) return;
        if (teller.empty() && event->kind == RunEvent::Kind::start) teller = name;
        const bool trouble = event->kind == RunEvent::Kind::warning || event->kind == RunEvent::Kind::error;
        if (trouble || teller.empty() || teller == name) run.events.push_back(std::move(*event));
      });
    } catch (const Error& e) {
      run.notes.push_back(fmt::format("{} cannot be read: {}", join_path(logs, name), e.problem().why));
    }
  }
  std::stable_sort(run.events.begin(), run.events.end(),
                   [](const RunEvent& a, const RunEvent& b) { return a.time < b.time; });
  if (run.events.size() <= kMaxEvents) return;
  run.events_left_out = static_cast<int64_t>(run.events.size() - kMaxEvents);
  const auto middle = run.events.begin() + kMaxEvents / 2;
  run.events.erase(middle, middle + run.events_left_out);
}

}  // namespace temper
