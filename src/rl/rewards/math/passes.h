#pragma once
// The steps that bring a tokenised answer to its normal form, in the order answer.cpp applies them. Each
// is linear in the tokens and never fails: what it does not recognise stays as it is.

#include <string_view>

#include "src/rl/rewards/math/tokens.h"

namespace temper {

/// Without words of measure at the end of a plain answer ("5 cm", "12 square feet", "3 cm^2"). The power of
/// the unit is 1, 2 or 3; 0: there is none.
struct WithoutUnit {
  std::string_view text;
  int power = 0;
};
WithoutUnit drop_unit_words(std::string_view text);

void drop_degrees(MathTokens& tokens);       // ^\circ, ^{\circ}
void drop_final_marks(MathTokens& tokens);   // . , ; at the end
int drop_final_units(MathTokens& tokens);    // 5\text{ cm}^2 -> 5; gives the unit's power as above
void unwrap_text(MathTokens& tokens);        // \text{A} -> A, \text{ and } -> ,
void drop_outer_braces(MathTokens& tokens);  // {5} -> 5
void drop_assignment(MathTokens& tokens);    // x=5 -> 5, x\in[0,1] -> [0,1]
void resolve_commas(MathTokens& tokens);     // 1,000 -> 1000, but (1,000) and 1,2 stay lists
void brace_arguments(MathTokens& tokens);    // \frac12 -> \frac{1}{2}, \sqrt3 -> \sqrt{3}, x^{2} -> x^2
void merge_numbers(MathTokens& tokens);      // one token per number: .50 -> 0.5, 007 -> 7
void write_fractions(MathTokens& tokens);    // 1/2 -> \frac{1}{2}
void unwrap_choice(MathTokens& tokens);      // (C) -> C

}  // namespace temper
