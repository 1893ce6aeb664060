#pragma once
// `exact`: 1 when the response equals the answer, white space at the ends of both aside, else 0; of a list
// of answers any is right. No options.

#include "src/rl/reward.h"
#include "src/rl/rewards/options.h"

namespace temper {

class ExactReward final : public Reward {
 public:
  explicit ExactReward(RewardOptions&) {}
  Verdict score(const RewardInput& input) const override;
  void check_answer(std::string_view answer, const std::string& where) const override;
  std::optional<std::string> answer_in(std::string_view response) const override;
  bool reads_answers() const override { return true; }
  std::string unmatched(std::string_view answer) const override;
};

}  // namespace temper
