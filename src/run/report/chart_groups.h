#pragma once
// Which metrics belong together on a page, and what they are counted in.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

struct ChartMetric {
  std::string key, unit;
};
struct ChartGroup {
  std::string title;
  std::vector<ChartMetric> metrics;
};

/// All of `keys`, each once, in the order of the groups; the last group has those of no other. The times of
/// phases (timing_s/) are left out: they are drawn together.
std::vector<ChartGroup> chart_groups(const std::vector<std::string>& keys);

/// What `temper help metrics` says of a key, or nothing.
std::string_view metric_help(const std::string& key);

}  // namespace temper
