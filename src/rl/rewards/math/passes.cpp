#include "src/rl/rewards/math/passes.h"

#include <algorithm>
#include <array>
#include <optional>

#include "src/rl/rewards/math/units.h"
#include "src/rl/rewards/text.h"

namespace temper {
namespace {

constexpr auto kTextCommands = std::to_array<std::string_view>(
    {"\\text",       "\\mbox",       "\\hbox",    "\\textrm", "\\textbf",    "\\textit",       "\\textsf",
     "\\texttt",     "\\mathrm",     "\\mathbf",  "\\mathit", "\\mathsf",    "\\operatorname", "\\textnormal",
     "\\emph",       "\\boldsymbol", "\\bm",      "\\pmb",    "\\underline", "\\boxed",        "\\fbox",
     "\\ensuremath", "\\mathop",     "\\mathord", "\\textsc"});

/// What may follow a unit: the end of an answer, of an item or of a group.
constexpr auto kBehindUnit =
    std::to_array<std::string_view>({",", kTightComma, ";", ".", ")", "]", "}", "\\}", "=", "\\approx", "<",
                                     ">", "\\le", "\\ge", "\\or", "\\and"});

bool is_digit_token(const std::string& token) { return token.size() == 1 && is_digit(token[0]); }
bool is_number_token(const std::string& token) { return is_digit(token[0]); }
bool is_letter_token(const std::string& token) { return token.size() == 1 && is_letter(token[0]); }
bool is_text_command(const std::string& token) { return contains(kTextCommands, token); }

std::string joined(const MathTokens& tokens, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) text += tokens[i];
  return text;
}

bool carries_unit(const std::string& token) {
  return is_digit_token(token) || is_letter_token(token) || token == "}" || token == ")" || token == "]" ||
         token == "\\pi" || token == "\\}" || token.starts_with("\\end{");
}

struct TextUnit {
  size_t end;  // behind it
  std::string name;
};

/// The unit that starts at `begin`: \text{...} with a power, and more of them behind it or behind a `/`.
std::optional<TextUnit> text_unit(const MathTokens& tokens, const std::vector<size_t>& match, size_t begin) {
  constexpr size_t kMostTokens = 64;
  std::string content;
  size_t at = begin;
  while (at + 1 < tokens.size() && is_text_command(tokens[at]) && tokens[at + 1] == "{" &&
         match[at + 1] != kNoMatch && match[at + 1] - at < kMostTokens && content.size() < kMostTokens) {
    const size_t close = match[at + 1];
    if (tokens[at + 2] == "\\and" || tokens[at + 2] == "\\or") break;
    content += joined(tokens, at + 2, close);
    at = close + 1;
    if (at + 1 < tokens.size() && tokens[at] == "^") {
      const size_t power_end = tokens[at + 1] == "{" ? match[at + 1] : at + 1;
      if (power_end == kNoMatch || power_end - at > 3) break;
      content += joined(tokens, at, power_end + 1);
      at = power_end + 1;
    }
    if (at + 1 < tokens.size() && tokens[at] == "/" && is_text_command(tokens[at + 1]))
      content += tokens[at++];
  }
  const bool name = content.size() == 1 && is_letter_token(tokens[begin - 1]);
  const auto unit = name && content != "m" && content != "s" ? std::nullopt : unit_name(content);
  const bool text_list = at + 2 < tokens.size() && is_text_command(tokens[at]) &&
                         (tokens[at + 2] == "\\and" || tokens[at + 2] == "\\or" || tokens[at + 2] == ",");
  if (!unit || !(at >= tokens.size() || text_list || contains(kBehindUnit, tokens[at]))) return std::nullopt;
  return TextUnit{at, *unit};
}

/// For every `open` the index of its `close`; kNoMatch elsewhere.
std::vector<size_t> match_of(const MathTokens& tokens, std::string_view open, std::string_view close) {
  std::vector<size_t> match(tokens.size(), kNoMatch), opened;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == open) opened.push_back(i);
    if (tokens[i] != close || opened.empty()) continue;
    match[opened.back()] = i;
    opened.pop_back();
  }
  return match;
}

bool is_gap(const std::string& token) { return token == kGap || token == kBreak; }

/// First token after the variable that the answer starts with (x, x_1, f(x), \theta); 0 when there is none.
size_t after_variable(const MathTokens& t) {
  if (t.empty() || !(is_letter_token(t[0]) || (is_command(t[0]) && is_letter(t[0].back())))) return 0;
  if (t.size() > 3 && t[1] == "_") return 3;
  if (t.size() > 4 && t[1] == "(" && is_letter_token(t[2]) && t[3] == ")") return 4;
  return 1;
}

}  // namespace

void drop_degrees(MathTokens& tokens) {
  MathTokens result;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool power = tokens[i] == "^";
    if (power && i + 1 < tokens.size() && tokens[i + 1] == "\\circ") {
      i += 1;
    } else if (power && i + 3 < tokens.size() && tokens[i + 1] == "{" && tokens[i + 2] == "\\circ" &&
               tokens[i + 3] == "}") {
      i += 3;
    } else {
      result.push_back(std::move(tokens[i]));
    }
  }
  tokens = std::move(result);
}

void drop_final_marks(MathTokens& tokens) {
  const size_t size = tokens.size();
  if (size > 1 && tokens[size - 1] == "." && tokens[size - 2] == ".") return;  // "7..." is not 7
  while (!tokens.empty() && (tokens.back() == "." || tokens.back() == "," || tokens.back() == ";")) {
    tokens.pop_back();
  }
}

std::vector<std::string> drop_text_units(MathTokens& tokens) {
  const std::vector<size_t> match = match_braces(tokens);
  std::vector<std::string> units;
  MathTokens result;
  for (size_t i = 0; i < tokens.size();) {
    const bool start = i > 0 && is_text_command(tokens[i]) && carries_unit(tokens[i - 1]);
    if (const auto unit = start ? text_unit(tokens, match, i) : std::nullopt) {
      if (units.empty() || units.back() != unit->name) units.push_back(unit->name);
      i = unit->end;
    } else {
      result.push_back(tokens[i++]);
    }
  }
  tokens = std::move(result);
  return units;
}

void unwrap_text(MathTokens& tokens) {
  const std::vector<size_t> match = match_braces(tokens);
  std::vector<bool> dropped(tokens.size(), false);
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (!is_text_command(tokens[i])) continue;
    if (tokens[i + 1] == "{" && match[i + 1] == kNoMatch) continue;
    dropped[i] = true;
    if (tokens[i + 1] == "{") dropped[i + 1] = dropped[match[i + 1]] = true;
  }
  MathTokens result;
  bool apart = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!dropped[i]) {
      const bool digits = !result.empty() && is_digit(result.back()[0]) && is_digit_token(tokens[i]);
      if (apart && digits) result.emplace_back(kBreak);
      result.push_back(std::move(tokens[i]));
    }
    apart = dropped[i];
  }
  tokens = std::move(result);
}

void join_commas(MathTokens& tokens) {
  MathTokens result;
  for (std::string& token : tokens) {
    const bool word = token == "\\and" || token == "\\or";
    if (word && !result.empty() && result.back() == ",") result.pop_back();
    result.push_back(token == "\\and" ? "," : std::move(token));
  }
  tokens = std::move(result);
}

void drop_outer_braces(MathTokens& tokens) {
  const std::vector<size_t> match = match_braces(tokens);
  size_t begin = 0, end = tokens.size();
  while (end - begin >= 2 && tokens[begin] == "{" && match[begin] == end - 1) {
    ++begin;
    --end;
  }
  tokens =
      MathTokens(tokens.begin() + static_cast<int64_t>(begin), tokens.begin() + static_cast<int64_t>(end));
}

std::string drop_assignment(MathTokens& tokens) {
  const size_t variable = after_variable(tokens);
  if (variable == 0 || variable + 1 >= tokens.size()) return {};
  const bool equals = tokens[variable] == "=" && std::count(tokens.begin(), tokens.end(), "=") == 1;
  if (!equals && tokens[variable] != "\\in") return {};
  const bool plain = variable != 4;  // not f(x)
  std::string name = plain ? tokens[0] : std::string();
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<int64_t>(variable) + 1);
  return name;
}

void resolve_commas(MathTokens& tokens) {
  MathTokens result;
  int64_t depth = 0;
  for (size_t i = 0; i < tokens.size();) {
    if (tokens[i] == "(" || tokens[i] == "[" || tokens[i] == "\\{") ++depth;
    if (tokens[i] == ")" || tokens[i] == "]" || tokens[i] == "\\}") --depth;
    if (!is_digit_token(tokens[i])) {
      result.push_back(std::move(tokens[i++]));
      continue;
    }
    size_t end = i, block = 0;
    bool first = true, commas = false;
    bool thousands = depth <= 0 && (result.empty() || result.back() != ".");
    for (; end < tokens.size() && (is_digit_token(tokens[end]) || tokens[end] == kTightComma); ++end) {
      if (tokens[end] != kTightComma) {
        ++block;
        continue;
      }
      thousands = thousands && (first ? block <= 3 : block == 3);
      first = false;
      commas = true;
      block = 0;
    }
    thousands = thousands && commas && block == 3;
    for (; i < end; ++i) {
      const bool comma = tokens[i] == kTightComma;
      if (!comma || !thousands) result.push_back(comma ? "," : std::move(tokens[i]));
    }
  }
  tokens = std::move(result);
}

void brace_arguments(MathTokens& tokens) {
  const std::vector<size_t> match = match_braces(tokens), round = match_of(tokens, "(", ")"),
                            square = match_of(tokens, "[", "]");
  const size_t n = tokens.size();
  std::vector<int> wrapped(n, 0);
  std::vector<bool> dropped(n, false);
  auto after_argument = [&](size_t at) {
    while (at < n && is_gap(tokens[at])) dropped[at++] = true;
    if (at >= n || tokens[at] == "}") return n;
    if (tokens[at] == "{") return match[at] == kNoMatch ? n : match[at] + 1;
    ++wrapped[at];
    return at + 1;
  };
  for (size_t i = 0; i + 1 < n; ++i) {
    if (tokens[i] == "\\sqrt" && tokens[i + 1] == "(" && round[i + 1] != kNoMatch) {
      tokens[round[i + 1]] = "}";
      tokens[i + 1] = "{";
    } else if (tokens[i] == "\\sqrt" && tokens[i + 1] == "[") {
      if (square[i + 1] != kNoMatch) after_argument(square[i + 1] + 1);
    } else if (tokens[i] == "\\sqrt" || tokens[i] == "\\overline" || tokens[i] == "\\mathbb") {
      after_argument(i + 1);
    } else if (tokens[i] == "\\frac" || tokens[i] == "\\binom") {
      after_argument(after_argument(i + 1));
    }
    const bool script = tokens[i] == "^" || tokens[i] == "_";
    if (script && tokens[i + 1] == "{" && match[i + 1] == i + 3) dropped[i + 1] = dropped[i + 3] = true;
  }
  MathTokens result;
  for (size_t i = 0; i < n; ++i) {
    const bool digit_follows = i + 1 < n && is_digit_token(tokens[i + 1]);
    if (dropped[i] && tokens[i] == "}" && digit_follows) result.emplace_back(kBreak);  // 2^{1}0 is not 2^10
    if (dropped[i]) continue;
    result.insert(result.end(), static_cast<size_t>(wrapped[i]), "{");
    result.push_back(std::move(tokens[i]));
    result.insert(result.end(), static_cast<size_t>(wrapped[i]), "}");
  }
  tokens = std::move(result);
}

namespace {

/// Reads one number from single digits.
class NumberReader {
 public:
  explicit NumberReader(const MathTokens& tokens) : tokens_(tokens) {}

  bool at_number(size_t i) const {
    return digit(i) || (is(i, ".") && (digit(i + 1) || repeated_end(i + 1) > 0));
  }

  /// The number that starts at `i`, which moves behind it. `groups`: blanks may stand between its thousands.
  std::string read(size_t& i, bool groups) const {
    std::string whole, fraction, repeated;
    const size_t grouped_end = groups ? thousands_end(i) : i;
    for (; digit(i) || i < grouped_end; ++i)
      if (digit(i)) whole += tokens_[i];
    const size_t behind = i + is(i, ".");
    if (behind > i && (digit(behind) || repeated_end(behind) > 0)) {
      for (i = behind; digit(i);) fraction += tokens_[i++];
      if (const size_t end = repeated_end(i)) {
        for (size_t k = i + 2; k + 1 < end; ++k) repeated += tokens_[k];
        i = end;
      }
    }
    whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
    while (repeated.empty() && fraction.ends_with('0')) fraction.pop_back();
    if (whole.empty()) whole.push_back('0');
    if (!repeated.empty()) return whole + "." + fraction + "(" + repeated + ")";
    return fraction.empty() ? whole : whole + "." + fraction;
  }

 private:
  bool is(size_t i, std::string_view token) const { return i < tokens_.size() && tokens_[i] == token; }
  bool digit(size_t i) const { return i < tokens_.size() && is_digit_token(tokens_[i]); }
  size_t digits_end(size_t i) const {
    while (digit(i)) ++i;
    return i;
  }

  /// End of \overline{digits} at `i`; 0 when it is none.
  size_t repeated_end(size_t i) const {
    constexpr size_t kMost = 9;
    if (!is(i, "\\overline") || !is(i + 1, "{") || !digit(i + 2)) return 0;
    size_t end = i + 2;
    while (digit(end) && end < i + 2 + kMost) ++end;
    return is(end, "}") ? end + 1 : 0;
  }

  /// End of `1 200 000` at `i`; `i` where blanks stand between other groups of digits.
  size_t thousands_end(size_t i) const {
    size_t end = digits_end(i);
    if (end - i > 3 || is(i, "0")) return i;
    while (end < tokens_.size() && is_gap(tokens_[end])) {
      const size_t next = digits_end(end + 1);
      if (tokens_[end] != kGap || next - end != 4) return i;
      end = next;
    }
    return is(end, "/") ? i : end;
  }

  const MathTokens& tokens_;
};

}  // namespace

void merge_numbers(MathTokens& tokens) {
  const NumberReader reader(tokens);
  MathTokens result;
  for (size_t i = 0; i < tokens.size();) {
    const bool apart = result.empty() || (!is_gap(result.back()) && result.back() != ".");
    if (reader.at_number(i)) {
      result.push_back(reader.read(i, apart));
    } else {
      result.push_back(std::move(tokens[i++]));
    }
  }
  tokens = std::move(result);
}

void write_fractions(MathTokens& tokens) {
  constexpr auto kBefore =
      std::to_array<std::string_view>({"(", "[", "{", "\\{", ",", "=", "+", "-", "&", "\\\\", "\\pm", "\\mp",
                                       "\\cup", "\\le", "\\ge", "<", ">"});
  constexpr auto kAfter = std::to_array<std::string_view>({"^", "_", "/", "!", "."});
  MathTokens result;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool ratio = i + 2 < tokens.size() && is_number_token(tokens[i]) && tokens[i + 1] == "/" &&
                       is_number_token(tokens[i + 2]);
    const bool left_free = i == 0 || contains(kBefore, tokens[i - 1]) || tokens[i - 1].starts_with("\\begin");
    const bool right_free = i + 3 >= tokens.size() || !contains(kAfter, tokens[i + 3]);
    if (ratio && left_free && right_free) {
      for (const std::string& part : {std::string("\\frac"), std::string("{"), tokens[i], std::string("}"),
                                      std::string("{"), tokens[i + 2], std::string("}")}) {
        result.push_back(part);
      }
      i += 2;
    } else {
      result.push_back(tokens[i]);
    }
  }
  tokens = std::move(result);
}

void unwrap_choice(MathTokens& tokens) {
  const bool choice =
      tokens.size() == 3 && tokens[0] == "(" && is_letter_token(tokens[1]) && tokens[2] == ")";
  if (choice) tokens = MathTokens{tokens[1]};
}

}  // namespace temper
