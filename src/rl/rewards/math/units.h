#pragma once
// Units of measure and nouns that are counted, behind a value. Only a known word is a unit: what multiplies,
// negates or offers a choice (million, dozen, not, or ...) is none, so it stays a part of the answer.

#include <optional>
#include <string>
#include <string_view>

namespace temper {

/// One name for all spellings of a unit that is written without blanks: "squarefeet", "ft^2" -> "ft^2",
/// "milesperhour", "mph" -> "mi/h", "apples" -> "apple"; nothing when it is no unit.
std::optional<std::string> unit_name(std::string_view text);

/// A word that may be part of a unit outside of \text{...}, where m or s are variables.
bool is_plain_unit_word(std::string_view word);

/// The same unit, or one is missing (empty), or one is "units" of the same power.
bool units_agree(std::string_view a, std::string_view b);

struct WithoutUnit {
  std::string_view text;
  std::string unit = {};  // empty: there is none
};

/// Without words of measure at the end of a plain answer ("5 cm", "12 square feet", "3 cm^2").
WithoutUnit drop_unit_words(std::string_view text);

}  // namespace temper
