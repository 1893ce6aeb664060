#include "src/rl/rewards/exact.h"

#include <algorithm>

#include "src/rl/rewards/any_answer.h"
#include "src/rl/rewards/text.h"

namespace temper {

Verdict ExactReward::score(const RewardInput& input) const {
  check_answer(input.answer, "the answer of a prompt");
  return best_of_answers(input.answer, [&](const std::string& answer) {
    return strip(input.response) == strip(answer) ? 1 : 0;
  });
}

void ExactReward::check_answer(std::string_view answer, const std::string& where) const {
  check_each_answer("exact", answer, where, [](const std::string&) {});
}

std::optional<std::string> ExactReward::answer_in(std::string_view response) const {
  const std::string_view said = strip(response);
  return said.empty() ? std::nullopt : std::optional<std::string>(said);
}

std::string ExactReward::unmatched(std::string_view answer) const {
  const std::vector<std::string> answers = right_answers(answer);
  const bool empty = std::all_of(answers.begin(), answers.end(),
                                 [](const std::string& right) { return strip(right).empty(); });
  return empty && !answers.empty() ? "the answer is empty" : "";
}

}  // namespace temper
