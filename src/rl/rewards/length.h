#pragma once
// `length`: the soft overlong punishment of DAPO, a shaping term. With L = max_tokens, C = buffer_tokens and
// n response tokens that are trained (with the stop token; not what a program says between turns):
//   0 for n <= L - C,   factor (L - C - n) / C for L - C < n <= L,   -factor for n > L.
// Options: max_tokens and buffer_tokens (needed, integers, 1 <= C <= L), factor = 1.

#include "src/rl/reward.h"
#include "src/rl/rewards/options.h"

namespace temper {

class LengthReward final : public Reward {
 public:
  explicit LengthReward(RewardOptions& options);
  Verdict score(const RewardInput& input) const override;
  bool is_shaping() const override { return true; }

 private:
  int64_t max_tokens_, buffer_tokens_;
  double factor_;
};

}  // namespace temper
