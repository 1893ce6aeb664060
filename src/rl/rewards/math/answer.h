#pragma once
// Final answers of mathematics problems in LaTeX: finding the last box of a text, and deciding whether two
// answers are the same up to notation. Equal normal forms are equal answers; plain numbers, fractions and
// mixed numbers are also compared by exact value (1/2 = 0.5 = \frac{2}{4}), never within a tolerance.
// The normal form drops spaces, $, %, degree signs, \left \right, units and a final full stop, unwraps \text,
// writes \frac{a}{b} and \sqrt{a} with braces, x^2 without, numbers without thousands commas, leading and
// trailing zeros, and drops a leading "x =" or "x \in". Units count only where both answers have one: cm^2 is
// not cm^3, 5 is 5 cm. At most kMathTailBytes are looked at, in linear time.

#include <optional>
#include <string>
#include <string_view>

namespace temper {

inline constexpr size_t kMathTailBytes = size_t{64} << 10;

/// The last kMathTailBytes of a text.
std::string_view math_tail(std::string_view text);

/// Content of the last \boxed{...} or \fbox{...}, or of `\boxed 5` up to a `$` or the end of the line;
/// nothing when there is none or its braces do not close.
std::optional<std::string_view> last_boxed(std::string_view text);

std::string normal_math_answer(std::string_view answer);
bool math_answers_equal(std::string_view a, std::string_view b);

}  // namespace temper
