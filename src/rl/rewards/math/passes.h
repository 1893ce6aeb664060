#pragma once
// The steps that bring a tokenised answer to its normal form, in the order answer.cpp applies them. Each
// is linear in the tokens and never fails: what it does not recognise stays as it is.

#include <string>
#include <vector>

#include "src/rl/rewards/math/tokens.h"

namespace temper {

void drop_degrees(MathTokens& tokens);       // ^\circ, ^{\circ}
void drop_final_marks(MathTokens& tokens);   // . , ; at the end
void drop_outer_braces(MathTokens& tokens);  // {5} -> 5
/// 5\text{ cm}^2 -> 5, also inside of lists; gives the names of the units (units.h) without repetitions.
std::vector<std::string> drop_text_units(MathTokens& tokens);
void unwrap_text(MathTokens& tokens);             // \text{A} -> A, \boldsymbol{7} -> 7
void join_commas(MathTokens& tokens);             // 1, 2, \and 3 -> 1, 2, 3
std::string drop_assignment(MathTokens& tokens);  // x_1=5 -> 5, x\in[0,1] -> [0,1]; gives the letter (x)
void resolve_commas(MathTokens& tokens);          // 1,000 -> 1000, but (1,000) and 1,2 stay lists
void brace_arguments(MathTokens& tokens);         // \frac12 -> \frac{1}{2}, \sqrt3 -> \sqrt{3}, x^{2} -> x^2
void merge_numbers(MathTokens& tokens);    // one token per number: .50 -> 0.5, 0.1\overline{6} -> 0.1(6)
void write_fractions(MathTokens& tokens);  // 1/2 -> \frac{1}{2}
void unwrap_choice(MathTokens& tokens);    // (C) -> C

}  // namespace temper
