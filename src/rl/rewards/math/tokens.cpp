#include "src/rl/rewards/math/tokens.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/rl/rewards/text.h"

namespace temper {
namespace {

using Synonym = std::pair<std::string_view, std::string_view>;

constexpr auto kDropped = std::to_array<std::string_view>(
    {"$",           "%",        "~",           "\\",     "\\$",     "\\%",
     "\\!",         "\\,",      "\\;",         "\\:",    "\\>",     "\\ ",
     "\\(",         "\\)",      "\\[",         "\\]",    "\\quad",  "\\qquad",
     "\\left",      "\\right",  "\\big",       "\\Big",  "\\bigg",  "\\Bigg",
     "\\bigl",      "\\bigr",   "\\Bigl",      "\\Bigr", "\\biggl", "\\biggr",
     "\\Biggl",     "\\Biggr",  "\\limits",    "\\rm",   "\\bf",    "\\displaystyle",
     "\\textstyle", "\\degree", "\\textdegree"});

constexpr auto kSynonyms = std::to_array<Synonym>({{"\\dfrac", "\\frac"},
                                                   {"\\tfrac", "\\frac"},
                                                   {"\\cfrac", "\\frac"},
                                                   {"\\leq", "\\le"},
                                                   {"\\leqslant", "\\le"},
                                                   {"\\geq", "\\ge"},
                                                   {"\\geqslant", "\\ge"},
                                                   {"\\neq", "\\ne"},
                                                   {"\\times", "\\cdot"},
                                                   {"\\lbrace", "\\{"},
                                                   {"\\rbrace", "\\}"},
                                                   {"\\ldots", "\\dots"},
                                                   {"\\cdots", "\\dots"},
                                                   {"\\emptyset", "\\varnothing"}});

constexpr auto kUnicode = std::to_array<Synonym>({{"\xE2\x88\x92", "-"},        // U+2212 minus
                                                  {"\xC2\xB0", ""},             // U+00B0 degree
                                                  {"\xC2\xA0", ""},             // U+00A0 no-break space
                                                  {"\xC3\x97", "\\cdot"},       // U+00D7 times
                                                  {"\xC2\xB7", "\\cdot"},       // U+00B7 middle dot
                                                  {"\xCF\x80", "\\pi"},         // U+03C0 pi
                                                  {"\xE2\x88\x9E", "\\infty"},  // U+221E infinity
                                                  {"\xE2\x89\xA4", "\\le"},     // U+2264
                                                  {"\xE2\x89\xA5", "\\ge"}});   // U+2265

/// Length of `{name}` at the front of `text`, 0 when there is none.
size_t braced_name(std::string_view text) {
  if (text.empty() || text[0] != '{') return 0;
  size_t end = 1;
  while (end < text.size() && (is_letter(text[end]) || text[end] == '*')) ++end;
  return end > 1 && end < text.size() && text[end] == '}' ? end + 1 : 0;
}

/// Length of the token that starts at `i`: a command, a known multi-byte sign, or one byte.
size_t token_length(std::string_view text, size_t i) {
  if (text[i] == '\\') {
    size_t end = i + 1;
    while (end < text.size() && is_letter(text[end])) ++end;
    if (end == i + 1) return std::min<size_t>(2, text.size() - i);
    std::string_view command = text.substr(i, end - i);
    const bool environment = command == "\\begin" || command == "\\end";
    return end - i + (environment ? braced_name(text.substr(end)) : 0);
  }
  for (const Synonym& sign : kUnicode) {
    if (text.substr(i).starts_with(sign.first)) return sign.first.size();
  }
  return 1;
}

std::string_view common_name(std::string_view token) {
  for (const Synonym& synonym : kSynonyms) {
    if (synonym.first == token) return synonym.second;
  }
  for (const Synonym& sign : kUnicode) {
    if (sign.first == token) return sign.second;
  }
  return token;
}

bool dropped(std::string_view token) {
  return is_space(token[0]) || std::find(kDropped.begin(), kDropped.end(), token) != kDropped.end();
}

/// Length of a thousands comma as TeX authors write it, `{,}` or `,\!` (`, \!`) after a digit; 0 when there
/// is none.
size_t thousands_comma(std::string_view text, size_t i) {
  if (i == 0 || !is_digit(text[i - 1])) return 0;
  if (text.substr(i).starts_with("{,}")) return 3;
  if (text[i] != ',') return 0;
  size_t end = i + 1;
  while (end < text.size() && text[end] == ' ') ++end;
  return text.substr(end).starts_with("\\!") ? end + 2 - i : 0;
}

bool between_digits(std::string_view text, size_t i) {
  return i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
}

}  // namespace

MathTokens math_tokens(std::string_view text) {
  MathTokens tokens;
  for (size_t i = 0, length; i < text.size(); i += length) {
    length = thousands_comma(text, i);
    if (length > 0) continue;
    length = token_length(text, i);
    std::string_view token = text.substr(i, length);
    const bool delimiter = token == "\\left" || token == "\\right";
    if (delimiter && i + length < text.size() && text[i + length] == '.') ++length;  // the empty delimiter
    if (dropped(token)) continue;
    if (token == ",") token = between_digits(text, i) ? kTightComma : token;
    std::string_view name = common_name(token);
    if (!name.empty()) tokens.emplace_back(name);
  }
  return tokens;
}

std::vector<size_t> match_braces(const MathTokens& tokens) {
  std::vector<size_t> match(tokens.size(), kNoMatch), open;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == "{") open.push_back(i);
    if (tokens[i] != "}" || open.empty()) continue;
    match[i] = open.back();
    match[open.back()] = i;
    open.pop_back();
  }
  return match;
}

}  // namespace temper
