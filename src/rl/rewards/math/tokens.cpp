#include "src/rl/rewards/math/tokens.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/rl/rewards/math/signs.h"
#include "src/rl/rewards/text.h"

namespace temper {
namespace {

using Synonym = std::pair<std::string_view, std::string_view>;

constexpr auto kDropped = std::to_array<std::string_view>({"$",
                                                           "%",
                                                           "~",
                                                           "\\",
                                                           "\\$",
                                                           "\\%",
                                                           "\\!",
                                                           "\\,",
                                                           "\\;",
                                                           "\\:",
                                                           "\\>",
                                                           "\\ ",
                                                           "\\(",
                                                           "\\)",
                                                           "\\[",
                                                           "\\]",
                                                           "\\quad",
                                                           "\\qquad",
                                                           "\\left",
                                                           "\\right",
                                                           "\\big",
                                                           "\\Big",
                                                           "\\bigg",
                                                           "\\Bigg",
                                                           "\\bigl",
                                                           "\\bigr",
                                                           "\\Bigl",
                                                           "\\Bigr",
                                                           "\\biggl",
                                                           "\\biggr",
                                                           "\\Biggl",
                                                           "\\Biggr",
                                                           "\\limits",
                                                           "\\rm",
                                                           "\\bf",
                                                           "\\it",
                                                           "\\degree",
                                                           "\\textdegree",
                                                           "\\displaystyle",
                                                           "\\textstyle",
                                                           "\\scriptstyle",
                                                           "\\tiny",
                                                           "\\small",
                                                           "\\normalsize",
                                                           "\\large",
                                                           "\\Large",
                                                           "\\LARGE",
                                                           "\\huge",
                                                           "\\Huge",
                                                           "\\pounds",
                                                           "\\euro",
                                                           "\\thinspace",
                                                           "\\enspace",
                                                           "\\space",
                                                           "\\dollar",
                                                           "\\middle",
                                                           "\\bfseries",
                                                           "\\nobreak"});

constexpr auto kGaps =
    std::to_array<std::string_view>({" ", "~", "\\,", "\\;", "\\:", "\\>", "\\ ", "\\thinspace"});

constexpr auto kSynonyms = std::to_array<Synonym>({{"\\dfrac", "\\frac"},
                                                   {"\\tfrac", "\\frac"},
                                                   {"\\cfrac", "\\frac"},
                                                   {"\\dbinom", "\\binom"},
                                                   {"\\tbinom", "\\binom"},
                                                   {"\\leq", "\\le"},
                                                   {"\\leqslant", "\\le"},
                                                   {"\\geq", "\\ge"},
                                                   {"\\geqslant", "\\ge"},
                                                   {"\\lt", "<"},
                                                   {"\\gt", ">"},
                                                   {"\\neq", "\\ne"},
                                                   {"\\simeq", "\\approx"},
                                                   {"\\times", "\\cdot"},
                                                   {"\\ast", "\\cdot"},
                                                   {"*", "\\cdot"},
                                                   {"\\div", "/"},
                                                   {"\\slash", "/"},
                                                   {"\\lbrace", "\\{"},
                                                   {"\\rbrace", "\\}"},
                                                   {"\\lbrack", "["},
                                                   {"\\rbrack", "]"},
                                                   {"\\lparen", "("},
                                                   {"\\rparen", ")"},
                                                   {"\\lvert", "|"},
                                                   {"\\rvert", "|"},
                                                   {"\\vert", "|"},
                                                   {"\\mid", "|"},
                                                   {"\\bar", "\\overline"},
                                                   {"\\ldots", "\\dots"},
                                                   {"\\cdots", "\\dots"},
                                                   {"\\union", "\\cup"},
                                                   {"\\intersect", "\\cap"},
                                                   {"\\varphi", "\\phi"},
                                                   {"\\lor", "\\or"},
                                                   {"\\vee", "\\or"},
                                                   {"\\emptyset", "\\varnothing"}});

/// Whole words of plain text.
constexpr auto kWords = std::to_array<Synonym>({{"and", "\\and"},
                                                {"or", "\\or"},
                                                {"sqrt", "\\sqrt"},
                                                {"pi", "\\pi"},
                                                {"infinity", "\\infty"},
                                                {"infty", "\\infty"},
                                                {"inf", "\\infty"},
                                                {"sin", "\\sin"},
                                                {"cos", "\\cos"},
                                                {"tan", "\\tan"},
                                                {"ln", "\\ln"},
                                                {"log", "\\log"}});

constexpr auto kPairs = std::to_array<Synonym>({{">=", "\\ge"},
                                                {"<=", "\\le"},
                                                {"==", "="},
                                                {"**", "^"},
                                                {"+-", "\\pm"},
                                                {"\\not=", "\\ne"},
                                                {"\\not =", "\\ne"}});

template <typename List>
const Synonym* synonym_at(const List& list, std::string_view text) {
  for (const Synonym& synonym : list)
    if (text.starts_with(synonym.first)) return &synonym;
  return nullptr;
}

template <typename List>
std::string_view name_in(const List& list, std::string_view token) {
  for (const Synonym& synonym : list)
    if (synonym.first == token) return synonym.second;
  return token;
}

/// Length of `{name}` at the front of `text`, 0 when there is none.
size_t braced_name(std::string_view text) {
  if (text.empty() || text[0] != '{') return 0;
  size_t end = 1;
  while (end < text.size() && (is_letter(text[end]) || text[end] == '*')) ++end;
  return end > 1 && end < text.size() && text[end] == '}' ? end + 1 : 0;
}

size_t letters_at(std::string_view text, size_t i) {
  size_t end = i;
  while (end < text.size() && is_letter(text[end])) ++end;
  return end - i;
}

/// Length of a command; that of an environment's begin or end, or of a colour, with its name.
size_t command_length(std::string_view text, size_t i) {
  const size_t end = i + 1 + letters_at(text, i + 1);
  if (end == i + 1) return std::min<size_t>(2, text.size() - i);
  const std::string_view command = text.substr(i, end - i);
  const bool named =
      command == "\\begin" || command == "\\end" || command == "\\color" || command == "\\textcolor";
  return end - i + (named ? braced_name(text.substr(end)) : 0);
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

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  MathTokens tokens() {
    while (at_ < text_.size()) {
      if (const size_t comma = thousands_comma(text_, at_)) {
        at_ += comma;
        while (at_ < text_.size() && text_[at_] == ' ') ++at_;
        blank_ = {};
      } else if (const Synonym* pair = synonym_at(kPairs, text_.substr(at_))) {
        at_ += pair->first.size();
        push(pair->second);
      } else if (is_letter(text_[at_])) {
        word();
      } else {
        token();
      }
    }
    return std::move(tokens_);
  }

 private:
  void push(std::string_view name) {
    const bool digit = is_digit(name[0]) || (name == "." && at_ < text_.size() && is_digit(text_[at_]));
    const bool after = !tokens_.empty() && (is_digit(tokens_.back()[0]) || tokens_.back() == ".");
    if (digit && after && !blank_.empty()) tokens_.emplace_back(blank_);
    blank_ = {};
    tokens_.emplace_back(name);
  }

  /// `5!=120` is a factorial, `x!=5` an inequality.
  bool ends_operand() const {
    return !tokens_.empty() &&
           (is_digit(tokens_.back()[0]) || tokens_.back() == ")" || tokens_.back() == "}");
  }

  void word() {
    const size_t length = letters_at(text_, at_);
    const std::string_view letters = text_.substr(at_, length), name = name_in(kWords, letters);
    at_ += length;
    if (name != letters) return push(name);
    for (size_t i = 0; i < length; ++i) push(letters.substr(i, 1));
  }

  void token() {
    const size_t begin = at_;
    std::string_view token = text_.substr(at_, text_[at_] == '\\' ? command_length(text_, at_) : 1);
    at_ += token.size();
    const bool delimiter = token == "\\left" || token == "\\right";
    if (delimiter && at_ < text_.size() && text_[at_] == '.') ++at_;  // the empty delimiter
    if (is_space(token[0]) || contains(kDropped, token) || token.starts_with("\\color{") ||
        token.starts_with("\\textcolor{")) {
      if (token != "\\!" && blank_ != kBreak) blank_ = contains(kGaps, token) ? kGap : kBreak;
      return;
    }
    if (token == "!" && at_ < text_.size() && text_[at_] == '=' && !ends_operand()) {
      ++at_;
      return push("\\ne");
    }
    if (token == ",") token = between_digits(text_, begin) ? kTightComma : token;
    push(name_in(kSynonyms, token));
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string_view blank_;  // what was passed over since the last token
  MathTokens tokens_;
};

}  // namespace

MathTokens math_tokens(std::string_view text) { return Lexer(without_unicode_signs(text)).tokens(); }

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
