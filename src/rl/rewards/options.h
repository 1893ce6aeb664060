#pragma once
// The options of one reward function, read by name. `finish` refuses every written option that no read asked
// for, so a misspelt name never falls back to a default in silence. All errors are Exit::usage.

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/config/reward_config.h"

namespace temper {

class RewardOptions {
 public:
  explicit RewardOptions(const RewardFunctionConfig& config) : config_(config) {}

  struct Range {
    double low = std::numeric_limits<double>::lowest();
    double high = std::numeric_limits<double>::max();
  };
  double number(std::string_view name, double fallback, Range range);
  /// Without a default: the option must be written.
  double number(std::string_view name, Range range);
  /// Index in `legal` of the written text, or of `fallback`.
  size_t choice(std::string_view name, std::string_view fallback, std::span<const std::string_view> legal);

  void finish() const;

 private:
  std::string key(std::string_view name) const;
  const RewardFunctionConfig& config_;
  std::vector<std::string_view> known_;
};

}  // namespace temper
