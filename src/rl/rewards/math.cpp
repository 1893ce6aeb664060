#include "src/rl/rewards/math.h"

#include "src/core/check.h"
#include "src/rl/rewards/any_answer.h"
#include "src/rl/rewards/math/answer.h"

namespace temper {
namespace {

std::string_view reference_answer(std::string_view answer) {
  return last_boxed(answer).value_or(math_tail(answer));
}

}  // namespace

Verdict MathReward::score(const RewardInput& input) const {
  check_answer(input.answer, "the answer of a prompt");
  std::optional<std::string_view> found = last_boxed(input.response);
  if (!found) return 0;
  return best_of_answers(input.answer, [&](const std::string& answer) {
    return math_answers_equal(*found, reference_answer(answer)) ? 1 : 0;
  });
}

std::optional<std::string> MathReward::answer_in(std::string_view response) const {
  const std::optional<std::string_view> found = last_boxed(response);
  if (!found) return std::nullopt;
  const std::string normal = normal_math_answer(*found);
  return normal.empty() ? std::nullopt : std::optional(normal);
}

void MathReward::check_answer(std::string_view answer, const std::string& where) const {
  check_each_answer("math", answer, where, [&](const std::string& right) {
    if (!normal_math_answer(reference_answer(right)).empty()) return;
    fail(Exit::data,
         {.what = "the reward \"math\" needs an answer",
          .where = where,
          .why = fmt::format("nothing is left of \"{}\" when it is normalised", right.substr(0, 200)),
          .fix = "write the answer in LaTeX, or a solution with a \\boxed{...}; see data.answer_key"});
  });
}

}  // namespace temper
