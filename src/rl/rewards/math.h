#pragma once
// `math`: the last \boxed{...} (or \fbox{...}) of the response against the reference answer, as in the
// Hendrycks MATH evaluation: 1 when their normal forms (math/answer.h) are equal, else 0; 0 without a box.
// The reference is an answer, or a solution whose last box is taken; of a list any is right. Only the last 64
// KiB of the response are looked at. No options.

#include "src/rl/reward.h"
#include "src/rl/rewards/options.h"

namespace temper {

class MathReward final : public Reward {
 public:
  explicit MathReward(RewardOptions&) {}
  Verdict score(const RewardInput& input) const override;
  void check_answer(std::string_view answer, const std::string& where) const override;
  std::optional<std::string> answer_in(std::string_view response) const override;
  bool reads_answers() const override { return true; }
};

}  // namespace temper
