#include "src/rl/rewards/options.h"

#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/rl/choices.h"

namespace temper {

std::string RewardOptions::key(std::string_view name) const {
  return fmt::format("reward.functions[{}].{}", config_.name, name);
}

void RewardOptions::fail_kind(std::string_view name, const char* kind, const std::string& fix) const {
  const std::string written(name);
  const std::string found =
      config_.numbers.contains(written)   ? fmt::format("it is the number {}", config_.numbers.at(written))
      : config_.strings.contains(written) ? fmt::format("it is the text \"{}\"", config_.strings.at(written))
      : config_.lists.contains(written)   ? "it is a list"
                                          : "it is not written and has no default";
  fail(Exit::usage,
       {.what = fmt::format("{} is not {}", key(name), kind), .where = key(name), .why = found, .fix = fix});
}

double RewardOptions::number(std::string_view name, double fallback, Range range) {
  const std::string written(name);
  if (config_.numbers.contains(written)) return number(name, range);
  known_.push_back(name);
  if (config_.strings.contains(written) || config_.lists.contains(written))
    fail_kind(name, "a number", fmt::format("write a number, the default is {}", fallback));
  return fallback;
}

int64_t RewardOptions::integer(std::string_view name, int64_t fallback, Range range) {
  const double value = number(name, static_cast<double>(fallback), range);
  if (value != std::floor(value))
    fail_kind(name, "a whole number", fmt::format("the default is {}", fallback));
  return static_cast<int64_t>(value);
}

std::vector<std::string> RewardOptions::texts(std::string_view name) {
  known_.push_back(name);
  const auto found = config_.lists.find(std::string(name));
  if (found == config_.lists.end() || found->second.empty())
    fail_kind(name, "a list of strings",
              fmt::format("write {{name = \"{}\", {} = [\"...\", ...]}}", config_.name, name));
  return found->second;
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
  if (config_.numbers.contains(written) || config_.lists.contains(written))
    fail_kind(name, "text", suggest_names("", legal));
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
  for (const auto& [name, unused] : config_.lists) check(name);
}

}  // namespace temper
