#include "src/rl/rewards/options.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/rl/choices.h"

namespace temper {

std::string RewardOptions::key(std::string_view name) const {
  return fmt::format("reward.functions[{}].{}", config_.name, name);
}

double RewardOptions::number(std::string_view name, double fallback, Range range) {
  if (config_.numbers.contains(std::string(name))) return number(name, range);
  known_.push_back(name);
  if (!config_.strings.contains(std::string(name))) return fallback;
  fail(Exit::usage, {.what = fmt::format("{} is not a number", key(name)),
                     .where = key(name),
                     .why = fmt::format("it is the text \"{}\"", config_.strings.at(std::string(name))),
                     .fix = fmt::format("write a number, the default is {}", fallback)});
}

double RewardOptions::number(std::string_view name, Range range) {
  known_.push_back(name);
  auto found = config_.numbers.find(std::string(name));
  if (found == config_.numbers.end()) {
    fail(Exit::usage, {.what = fmt::format("the reward \"{}\" needs {}", config_.name, name),
                       .where = key(name),
                       .why = "it is not written as a number and has no default",
                       .fix = fmt::format("write {{name = \"{}\", {} = ...}}", config_.name, name)});
  }
  if (found->second >= range.low && found->second <= range.high) return found->second;
  fail(Exit::usage, {.what = fmt::format("illegal value of {}", key(name)),
                     .where = key(name),
                     .why = fmt::format("{} is not in [{}, {}]", found->second, range.low, range.high),
                     .fix = fmt::format("write a number from {} to {}", range.low, range.high)});
}

size_t RewardOptions::choice(std::string_view name, std::string_view fallback,
                             std::span<const std::string_view> legal) {
  known_.push_back(name);
  const std::string written(name);
  if (config_.numbers.contains(written)) {
    fail(Exit::usage, {.what = fmt::format("{} is not text", key(name)),
                       .where = key(name),
                       .why = fmt::format("it is the number {}", config_.numbers.at(written)),
                       .fix = suggest_names("", legal)});
  }
  auto found = config_.strings.find(written);
  return choice_index(key(name), found == config_.strings.end() ? fallback : found->second, legal);
}

void RewardOptions::finish() const {
  auto check = [this](const std::string& name) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) return;
    fail(Exit::usage, {.what = fmt::format("unknown option of the reward \"{}\"", config_.name),
                       .where = key(name),
                       .why = fmt::format("\"{}\" has no option {}", config_.name, name),
                       .fix = suggest_names(name, known_)});
  };
  for (const auto& [name, unused] : config_.numbers) check(name);
  for (const auto& [name, unused] : config_.strings) check(name);
}

}  // namespace temper
