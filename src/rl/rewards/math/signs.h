#pragma once
// Signs of Unicode in answers, as the LaTeX or ASCII that says the same: U+2212 -> -, fullwidth digits and
// brackets -> ASCII, superscripts -> ^{...}, a root sign before digits -> \sqrt{...}. Linear; other text
// stays.

#include <string>
#include <string_view>

namespace temper {

std::string without_unicode_signs(std::string_view text);

}  // namespace temper
