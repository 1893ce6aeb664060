#pragma once
// The exact value of an answer: an ordered list of parts, or a set of them (\{...\}, "4 or 9", \pm 2), each a
// sum (sum.h), tuple, interval, matrix, union, equation or inequality whose own parts are values again. Two
// texts of one part are equal when the values are. `x = 5 + 6 = 11` is 11 of the name x: the sides of a chain
// must be equal. `x > 5` is the interval (5, \infty) of the name x.

#include <optional>
#include <string>
#include <vector>

#include "src/rl/rewards/math/fraction.h"
#include "src/rl/rewards/math/tokens.h"

namespace temper {

struct MathValue {
  std::vector<std::string> parts;  // keys
  std::vector<std::string> names;  // of the parts: x of `x = 5`; empty: none
  bool unordered = false;
  std::optional<Fraction> number;  // of a single part that is one
};

/// Nothing when the tokens are not understood whole, or beyond the limits (1,024 tokens, 40 levels, numbers
/// of 18 digits).
std::optional<MathValue> math_value(const MathTokens& normal_tokens);

bool values_equal(const MathValue& a, const MathValue& b);

}  // namespace temper
