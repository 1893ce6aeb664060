#pragma once
// Final answers of mathematics problems in LaTeX: finding the last box of a text, and deciding whether two
// answers are the same up to notation. Equal normal forms are equal answers; so are equal values (value.h):
// numbers, roots, tuples, sets, intervals, matrices and sums are compared by part in exact arithmetic
// (1/2 = 0.5 = \frac{2}{4}), never within a tolerance. What neither understands is another answer.
// The normal form drops spaces, $, %, degree signs, \left \right, sizes, units and a final full stop, unwraps
// \text, writes \frac{a}{b} and \sqrt{a} with braces, x^2 without, numbers without thousands separators,
// leading and trailing zeros, and drops a leading "x =" or "x \in". Only known units (units.h) are dropped;
// they count where both answers have one: cm is neither cm^2 nor km, 5 is 5 cm. 50\% is 50 and 0.5. At most
// kMathTailBytes are looked at, in bounded time.

#include <optional>
#include <string>
#include <string_view>

namespace temper {

inline constexpr size_t kMathTailBytes = size_t{64} << 10;

/// The last kMathTailBytes of a text.
std::string_view math_tail(std::string_view text);

/// Content of the last \boxed{...}, \fbox{...} or \framebox{...}, of `\boxed 5` up to a `$` or the end of the
/// line, or of `\boxed5`;
/// nothing when there is none or its braces do not close.
std::optional<std::string_view> last_boxed(std::string_view text);

std::string normal_math_answer(std::string_view answer);
bool math_answers_equal(std::string_view a, std::string_view b);

}  // namespace temper
