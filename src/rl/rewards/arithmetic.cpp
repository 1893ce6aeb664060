#include "src/rl/rewards/arithmetic.h"

#include "src/core/check.h"
#include "src/rl/rewards/any_answer.h"
#include "src/rl/rewards/text.h"

namespace temper {
namespace {

struct Integer {
  bool found = false;
  bool negative = false;
  std::string_view digits;   // without leading zeros; empty = 0
  std::string_view written;  // the part of the text that was read
  bool operator==(const Integer& other) const {
    return found == other.found && negative == other.negative && digits == other.digits;
  }
};

bool ends_operand(char c) { return is_digit(c) || is_letter(c) || c == ')' || c == ']' || c == '}'; }

Integer last_integer(std::string_view text) {
  text = strip(text);
  size_t begin = text.size();
  while (begin > 0 && is_digit(text[begin - 1])) --begin;
  if (begin == text.size()) return {};
  Integer result;
  result.found = true;
  result.digits = text.substr(begin);
  const bool sign = begin > 0 && (text[begin - 1] == '-' || text[begin - 1] == '+');
  if (sign && (begin == 1 || !ends_operand(text[begin - 2]))) {
    --begin;
    result.negative = text[begin] == '-';
  }
  result.written = text.substr(begin);
  while (!result.digits.empty() && result.digits.front() == '0') result.digits.remove_prefix(1);
  if (result.digits.empty()) result.negative = false;
  return result;
}

}  // namespace

Verdict ArithmeticReward::score(const RewardInput& input) const {
  check_answer(input.answer, "the answer of a prompt");
  return best_of_answers(input.answer, [&](const std::string& answer) {
    return last_integer(input.response) == last_integer(answer) ? 1 : 0;
  });
}

std::optional<std::string> ArithmeticReward::answer_in(std::string_view response) const {
  const Integer said = last_integer(response);
  if (!said.found) return std::nullopt;
  return (said.negative ? "-" : "") + (said.digits.empty() ? "0" : std::string(said.digits));
}

void ArithmeticReward::check_answer(std::string_view answer, const std::string& where) const {
  check_each_answer("arithmetic", answer, where, [&](const std::string& right) {
    if (!strip(right).empty() && last_integer(right).written == strip(right)) return;
    fail(Exit::data, {.what = "the reward \"arithmetic\" needs an integer as answer",
                      .where = where,
                      .why = fmt::format("the answer is \"{}\"", right.substr(0, 200)),
                      .fix = "write answers such as \"-12\", or use the reward \"exact\""});
  });
}

}  // namespace temper
