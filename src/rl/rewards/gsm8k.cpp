#include "src/rl/rewards/gsm8k.h"

#include <algorithm>
#include <array>
#include <optional>

#include "src/core/check.h"
#include "src/rl/rewards/any_answer.h"
#include "src/rl/rewards/text.h"

namespace temper {
namespace {

constexpr std::array<std::string_view, 2> kMethods{"strict", "flexible"};
constexpr std::string_view kMark = "#### ";
constexpr size_t kTail = 300;  // characters of the response that count

bool in_number(char c) { return is_digit(c) || c == '.' || c == ','; }

std::string without_commas(std::string_view text) {
  std::string result(text);
  std::erase(result, ',');
  return result;
}

/// The last `#### [-][0-9.,]+`.
std::optional<std::string> marked_number(std::string_view text) {
  for (size_t mark = text.rfind(kMark); mark != std::string_view::npos;
       mark = mark == 0 ? std::string_view::npos : text.rfind(kMark, mark - 1)) {
    std::string_view rest = text.substr(mark + kMark.size());
    size_t end = !rest.empty() && rest[0] == '-';
    const size_t sign = end;
    while (end < rest.size() && in_number(rest[end])) ++end;
    if (end > sign) return without_commas(rest.substr(0, end));
  }
  return std::nullopt;
}

/// The last run of [0-9.,] with a digit in it, and the `-` before it.
std::optional<std::string> last_number(std::string_view text) {
  for (size_t end = text.size(); end > 0;) {
    if (!in_number(text[end - 1])) {
      --end;
      continue;
    }
    size_t begin = end;
    while (begin > 0 && in_number(text[begin - 1])) --begin;
    std::string_view run = text.substr(begin, end - begin);
    if (std::any_of(run.begin(), run.end(), is_digit)) {
      while (!is_digit(run.back())) run.remove_suffix(1);
      std::string number(begin > 0 && text[begin - 1] == '-' ? 1 : 0, '-');
      return number += without_commas(run);
    }
    end = begin;
  }
  return std::nullopt;
}

std::optional<std::string> reference_number(std::string_view answer) {
  std::optional<std::string> number = marked_number(answer);
  if (number) return number;
  std::string whole = without_commas(strip(answer));
  if (whole.empty()) return std::nullopt;
  return whole;
}

}  // namespace

Gsm8kReward::Gsm8kReward(RewardOptions& options)
    : flexible_(options.choice("method", kMethods[0], kMethods) == 1),
      format_score_(options.number("format_score", 0, {})) {}

std::optional<std::string> Gsm8kReward::number_of(std::string_view response) const {
  const std::string_view tail = last_code_points(response, kTail);
  return flexible_ ? last_number(tail) : marked_number(tail);
}

Verdict Gsm8kReward::score(const RewardInput& input) const {
  check_answer(input.answer, "the answer of a prompt");
  const std::optional<std::string> found = number_of(input.response);
  if (!found) return 0;
  const bool right = best_of_answers(input.answer, [&](const std::string& answer) {
                       return found == reference_number(answer) ? 1 : 0;
                     }) > 0;
  return right ? 1 : format_score_;
}

std::optional<std::string> Gsm8kReward::answer_in(std::string_view response) const {
  return number_of(response);
}

void Gsm8kReward::check_answer(std::string_view answer, const std::string& where) const {
  check_each_answer("gsm8k", answer, where, [&](const std::string& right) {
    if (reference_number(right)) return;
    fail(Exit::data,
         {.what = "the reward \"gsm8k\" needs an answer",
          .where = where,
          .why = "the answer is empty",
          .fix = "write the number, or a solution that ends in `#### number`; see data.answer_key"});
  });
}

std::string Gsm8kReward::unmatched(std::string_view answer) const {
  constexpr size_t kShown = 40;
  const std::vector<std::string> answers = right_answers(answer);
  for (const std::string& right : answers) {
    const std::optional<std::string> number = reference_number(right);
    if (number && number_of(std::string(kMark) + *number) == number) return "";
  }
  if (answers.empty()) return "";
  const std::optional<std::string> first = reference_number(answers[0]);
  return first ? dump_json_line(first->substr(0, kShown)) +
                     " is no number as responses are read, like 18 or -2.5"
               : "the answer is empty";
}

}  // namespace temper
