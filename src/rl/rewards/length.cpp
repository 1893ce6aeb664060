#include "src/rl/rewards/length.h"

#include <cmath>

#include "src/core/check.h"

namespace temper {
namespace {

int64_t token_option(RewardOptions& options, const char* name, double high) {
  const double value = options.number(name, {1, high});
  if (value == std::floor(value)) return static_cast<int64_t>(value);
  fail(Exit::usage, {.what = fmt::format("illegal value of reward.functions[length].{}", name),
                     .where = fmt::format("reward.functions[length].{}", name),
                     .why = fmt::format("{} is not a whole number of tokens", value),
                     .fix = fmt::format("write {} or {}", std::floor(value), std::ceil(value))});
}

}  // namespace

LengthReward::LengthReward(RewardOptions& options)
    : max_tokens_(token_option(options, "max_tokens", 1e12)),
      buffer_tokens_(token_option(options, "buffer_tokens", static_cast<double>(max_tokens_))),
      factor_(options.number("factor", 1, {0})) {}

Verdict LengthReward::score(const RewardInput& input) const {
  const int64_t free = max_tokens_ - buffer_tokens_;
  if (input.response_tokens <= free) return 0;
  if (input.response_tokens > max_tokens_) return -factor_;
  return factor_ * (static_cast<double>(free - input.response_tokens) / static_cast<double>(buffer_tokens_));
}

}  // namespace temper
