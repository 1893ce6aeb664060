#pragma once
// `gsm8k`: the final number of the response against the number after `####` of the reference solution (or the
// whole reference when it has no `####`; of a list of references any is right). 1 when equal, `format_score`
// when a number was found but differs, 0 when none was found. Only the last 300 characters of the response
// count, as in verl's scorer. Options: method = "strict": the last `#### number`, where a number is
// [-][0-9.,]+ without its commas, equal
//            as text (verl's rule: "18" and "18.0" differ);
//          method = "flexible": the last number anywhere, without commas and without a final full stop;
//          format_score = 0.

#include <optional>

#include "src/rl/reward.h"
#include "src/rl/rewards/options.h"

namespace temper {

class Gsm8kReward final : public Reward {
 public:
  explicit Gsm8kReward(RewardOptions& options);
  Verdict score(const RewardInput& input) const override;
  void check_answer(std::string_view answer, const std::string& where) const override;
  std::optional<std::string> answer_in(std::string_view response) const override;
  bool reads_answers() const override { return true; }
  std::string unmatched(std::string_view answer) const override;

 private:
  /// The number that a response gives.
  std::optional<std::string> number_of(std::string_view response) const;

  bool flexible_;
  double format_score_;
};

}  // namespace temper
