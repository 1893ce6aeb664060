#pragma once
// LaTeX of a short answer as tokens: commands (\frac), single characters, and numbers once merged.
// Tokenising drops what never carries meaning in an answer (spaces, $, %, degree signs, sizes, \left, \right,
// ...) and gives synonyms one name (\dfrac -> \frac, >= -> \ge, the word "or" -> \or, U+2212 -> -). A blank
// between two digits stays, as kGap or kBreak: only groups of three digits may be joined over it. Linear.

#include <string>
#include <string_view>
#include <vector>

namespace temper {

using MathTokens = std::vector<std::string>;

/// A comma with a digit on both sides and no space: a thousands separator or a list, decided later.
inline constexpr std::string_view kTightComma = ",,";
inline constexpr std::string_view kGap = " ";     // a blank that may group digits by thousands
inline constexpr std::string_view kBreak = "\n";  // a wide blank, a new line, or something dropped
inline constexpr size_t kNoMatch = static_cast<size_t>(-1);

MathTokens math_tokens(std::string_view text);

/// For every `{` the index of its `}` and the reverse; kNoMatch for braces that do not pair and other tokens.
std::vector<size_t> match_braces(const MathTokens& tokens);

inline bool is_command(const std::string& token) { return token.size() > 1 && token[0] == '\\'; }

}  // namespace temper
