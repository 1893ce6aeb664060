#pragma once
// The options of one reward function, read by name. `finish` refuses every written option that no read asked
// for, so a misspelt name never falls back to a default in silence. All errors are Exit::usage.

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/config/reward_config.h"
#include "src/core/helpers/helpers.h"

namespace temper {

class RewardOptions {
 public:
  explicit RewardOptions(const RewardFunctionConfig& config, Helpers* helpers = nullptr)
      : config_(config), helpers_(helpers) {}

  struct Range {
    double low = std::numeric_limits<double>::lowest();
    double high = std::numeric_limits<double>::max();
  };
  double number(std::string_view name, double fallback, Range range);
  /// Without a default: the option must be written.
  double number(std::string_view name, Range range);
  int64_t integer(std::string_view name, int64_t fallback, Range range);
  /// A list of at least one string; it must be written.
  std::vector<std::string> texts(std::string_view name);
  /// Index in `legal` of the written text, or of `fallback`.
  size_t choice(std::string_view name, std::string_view fallback, std::span<const std::string_view> legal);

  void finish() const;

  /// To start programs with; null where options are only looked at.
  Helpers* helpers() const { return helpers_; }

 private:
  [[noreturn]] void fail_kind(std::string_view name, const char* kind, const std::string& fix) const;
  std::string key(std::string_view name) const;
  const RewardFunctionConfig& config_;
  Helpers* helpers_;
  std::vector<std::string_view> known_;
};

}  // namespace temper
