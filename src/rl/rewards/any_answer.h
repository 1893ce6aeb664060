#pragma once
// A data line may have several right answers (core/text/answer_text.h): a response earns the best of what
// each of them gives it.

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "src/core/check.h"
#include "src/core/text/answer_text.h"

namespace temper {

/// Calls `check` for every right answer. Error(Exit::data) at `where` when `answer` is neither a text or
/// number nor a list of at least one of them.
template <typename Check>
void check_each_answer(const char* reward, std::string_view answer, const std::string& where, Check check) {
  const std::vector<std::string> answers = right_answers(answer);
  if (answers.empty())
    fail(Exit::data, {.what = fmt::format("the reward \"{}\" cannot read an answer", reward),
                      .where = where,
                      .why = fmt::format("{} is neither a text or number nor a list of some",
                                         shown_answer(answer).substr(0, 200)),
                      .fix = "write the answer, or [the right answers]; see data.answer_key"});
  for (const std::string& right : answers) check(right);
}

/// The largest `score` of a right answer.
template <typename Score>
double best_of_answers(std::string_view answer, Score score) {
  const std::vector<std::string> answers = right_answers(answer);
  double best = score(answers.at(0));
  for (size_t i = 1; i < answers.size(); ++i) best = std::max<double>(best, score(answers[i]));
  return best;
}

}  // namespace temper
