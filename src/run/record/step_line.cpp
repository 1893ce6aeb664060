#include "src/run/record/step_line.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "src/config/units/duration.h"
#include "src/core/text/short_number.h"

namespace temper {
namespace {

struct Part {
  int importance = 0;  // for a line that has no room for all
  std::string text;
};

struct Shown {
  const char *metric, *label;
  int digits, importance;
};
constexpr Shown kShown[] = {
    {"critic/score/mean", "score", 3, 9},
    {"actor/loss", "loss", 4, 3},
    {"train/loss", "loss", 4, 9},
    {"actor/grad_norm", "grad_norm", 3, 2},
    {"train/grad_norm", "grad_norm", 3, 2},
    {"actor/entropy", "entropy", 3, 1},
    {"response_length/mean", "length", 1, 4},
};

/// To the minute where it is hours.
std::string left_text(double seconds) {
  const double unit = seconds < 3600 ? 1 : 60;
  return format_duration(std::round(seconds / unit) * unit) + " left";
}

std::string join(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& p : parts) text += (text.empty() ? "" : "  ") + p.text;
  return text;
}

/// Those that fit into a line of a terminal, the most important first; they stand in the order that they had.
std::vector<Part> fitting(const std::vector<Part>& parts) {
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return parts[a].importance > parts[b].importance; });
  std::map<size_t, Part> kept;
  size_t columns = 0;
  for (const size_t i : order) {
    const size_t more = parts[i].text.size() + (kept.empty() ? 0 : 2);
    if (columns + more > kTerminalColumns) continue;
    columns += more;
    kept.emplace(i, parts[i]);
  }
  std::vector<Part> line;
  for (auto& [unused, part] : kept) line.push_back(std::move(part));
  return line;
}

}  // namespace

std::string step_line(int64_t step, int64_t last_step, const std::map<std::string, double>& metrics,
                      double seconds_left) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  constexpr std::string_view kMean = "/score/mean";
  std::vector<Part> parts{{10, fmt::format("step {}/{}", step, last_step)}};
  for (const Shown& s : kShown)
    if (const auto at = metrics.find(s.metric); at != metrics.end())
      parts.push_back({s.importance, fmt::format("{} {:.{}f}", s.label, at->second, s.digits)});
  for (const auto& [name, value] : metrics)
    if (name.starts_with("val/") && name.ends_with("/loss"))
      parts.push_back({5, fmt::format("{} {:.4f}", name, value)});
    else if (name.starts_with("val/") && name.ends_with(kMean))
      parts.push_back(
          {5, fmt::format("{} {:.3f}", terminal ? name.substr(0, name.size() - kMean.size()) : name, value)});
  const auto seconds = metrics.find("timing_s/step"), tokens = metrics.find("perf/total_num_tokens");
  if (seconds != metrics.end()) {
    const double all = tokens == metrics.end() ? 0 : tokens->second;
    parts.push_back({6, fmt::format("s {:.2f}", seconds->second)});
    parts.push_back({7, short_number(all / seconds->second) + " tok/s"});
  }
  parts.push_back({8, left_text(seconds_left)});
  return join(terminal ? fitting(parts) : parts);
}

}  // namespace temper
