#pragma once
// `arithmetic`: 1 when the integer at the very end of the response equals the answer (any of a list), else 0.
// No options. The integer is the longest run of digits that ends the stripped response, with a `+` or `-`
// directly before it unless that sign is an operator (a letter, digit or closing bracket stands before it:
// "12-5" ends in 5). Integers of any length are compared by value: leading zeros and "-0" do not matter.

#include "src/rl/reward.h"
#include "src/rl/rewards/options.h"

namespace temper {

class ArithmeticReward final : public Reward {
 public:
  explicit ArithmeticReward(RewardOptions&) {}
  Verdict score(const RewardInput& input) const override;
  void check_answer(std::string_view answer, const std::string& where) const override;
  std::optional<std::string> answer_in(std::string_view response) const override;
  bool reads_answers() const override { return true; }
};

}  // namespace temper
