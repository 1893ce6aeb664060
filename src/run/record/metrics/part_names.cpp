#include "src/run/record/metrics/part_names.h"

#include <spdlog/fmt/fmt.h>

#include <vector>

#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/text/file_lines.h"

namespace temper {
namespace {

constexpr const char* kLeftOut = "reward/parts_left_out";
constexpr int64_t kMaxLine = int64_t{1} << 30;

bool is_part(const std::string& name) { return name.starts_with("reward/") && name.ends_with("/mean"); }

}  // namespace

PartNames::PartNames(const std::string& metrics_file) {
  if (!path_exists(metrics_file)) return;
  for_each_line(metrics_file, kMaxLine, [&](const std::string& text, int64_t) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || known_.size() >= kMaxPartNamesOfARun) return;
    for (const auto& [name, value] : line.items())
      if (is_part(name) && known_.size() < kMaxPartNamesOfARun) known_.insert(name);
  });
}

std::string PartNames::limit(std::map<std::string, double>& metrics) {
  std::vector<std::string> beyond;
  for (const auto& [name, value] : metrics) {
    if (!is_part(name) || known_.contains(name)) continue;
    if (known_.size() < kMaxPartNamesOfARun)
      known_.insert(name);
    else
      beyond.push_back(name);
  }
  for (const std::string& name : beyond) metrics.erase(name);
  if (beyond.empty()) return "";
  metrics[kLeftOut] += static_cast<double>(beyond.size());
  if (std::exchange(told_, true)) return "";
  return fmt::format(
      "the reward programs have named more than {} parts, {:.120} is a new one: metrics leave further ones "
      "out and count them in {}; rollouts have them all. Give parts the same names for every response",
      kMaxPartNamesOfARun, dump_json_line(beyond.front()), kLeftOut);
}

}  // namespace temper
