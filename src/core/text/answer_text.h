#pragma once
// Reference answers as one text each. A text is itself. What a data line holds in its place (a list of right
// answers, an object) is written as JSON behind kJsonMark, the record separator that starts a JSON text in
// RFC 7464, so that the text "[0,1]" and the list [0,1] stay two things.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/json.h"

namespace temper {

inline constexpr char kJsonMark = '\x1E';

/// The answer text of a value: texts are themselves, numbers, true and false their JSON text, null is "".
std::string answer_text(const Json& value);

/// The value that stands behind the mark; nothing for a plain text.
std::optional<Json> structured_answer(std::string_view answer);

/// Without the mark: for people and programs.
std::string_view shown_answer(std::string_view answer);

/// Any of them is right: the text itself, or the texts and numbers of a list. Empty: it is an object, an
/// empty list or a list of something else.
std::vector<std::string> right_answers(std::string_view answer);

}  // namespace temper
