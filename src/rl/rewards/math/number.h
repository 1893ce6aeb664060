#pragma once
// The exact value of an answer that is a number: [sign] decimal, [sign] \frac{decimal}{decimal} (signs inside
// allowed) or a mixed number 1\frac{1}{2}. Parts are bounded in digits so that the cross products of a
// comparison fit in 128 bits; longer numbers have no value here and are compared as text.

#include <optional>

#include "src/rl/rewards/math/tokens.h"

namespace temper {

__extension__ using Int128 = __int128;

struct Rational {
  Int128 numerator;    // at most 1.1e18 in size
  Int128 denominator;  // 1 to 1e18 in size, of either sign
};

std::optional<Rational> rational_value(const MathTokens& normal_tokens);

}  // namespace temper
