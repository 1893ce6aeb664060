#include "src/core/text/answer_text.h"

#include "src/core/big_integer.h"
#include "src/core/check.h"

namespace temper {

std::string answer_text(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return value.get<std::string>();
  if (const auto digits = big_integer(value)) return *digits;
  if (!value.is_structured()) return value.dump();
  Json kept = value;
  for (Json& element : kept)
    if (const auto digits = big_integer(element)) element = *digits;
  return kJsonMark + dump_json_line(kept);
}

std::optional<Json> structured_answer(std::string_view answer) {
  if (!answer.starts_with(kJsonMark)) return std::nullopt;
  try {
    Json value = parse_json(answer.substr(1), "an answer");
    return value.is_structured() ? std::optional(std::move(value)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string_view shown_answer(std::string_view answer) {
  return structured_answer(answer) ? answer.substr(1) : answer;
}

std::vector<std::string> right_answers(std::string_view answer) {
  const std::optional<Json> value = structured_answer(answer);
  if (!value) return {std::string(answer)};
  std::vector<std::string> answers;
  if (!value->is_array()) return answers;
  for (const Json& element : *value) {
    if (!element.is_string() && !element.is_number()) return {};
    answers.push_back(answer_text(element));
  }
  return answers;
}

}  // namespace temper
