#include "src/rl/rewards/math/passes.h"

#include <algorithm>
#include <array>

#include "src/rl/rewards/text.h"

namespace temper {
namespace {

constexpr auto kUnits = std::to_array<std::string_view>(
    {"am",     "cent",    "cents",     "centimeter", "centimeters", "cm",     "cubic",  "day",
     "days",   "degree",  "degrees",   "dollar",     "dollars",     "feet",   "foot",   "ft",
     "g",      "gallons", "gram",      "grams",      "hour",        "hours",  "inch",   "inches",
     "kg",     "km",      "kilometer", "kilometers", "lb",          "lbs",    "meter",  "meters",
     "mile",   "miles",   "minute",    "minutes",    "mm",          "month",  "months", "mph",
     "ounces", "people",  "per",       "percent",    "pm",          "points", "pound",  "pounds",
     "second", "seconds", "square",    "students",   "unit",        "units",  "way",    "ways",
     "week",   "weeks",   "yard",      "yards",      "year",        "years"});

/// Short for units where nothing else is meant: in \text{...}.
constexpr auto kTextUnits = std::to_array<std::string_view>({"in", "m", "rad", "s"});

constexpr size_t kLongestUnit = 64;

constexpr auto kTextCommands = std::to_array<std::string_view>(
    {"\\text", "\\mbox", "\\hbox", "\\textrm", "\\textbf", "\\textit", "\\textsf", "\\texttt", "\\mathrm",
     "\\mathbf", "\\mathit", "\\mathsf", "\\operatorname"});

template <typename List>
bool contains(const List& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool is_digit_token(const std::string& token) { return token.size() == 1 && is_digit(token[0]); }
bool is_number_token(const std::string& token) { return is_digit(token[0]); }
bool is_letter_token(const std::string& token) { return token.size() == 1 && is_letter(token[0]); }
bool is_text_command(const std::string& token) { return contains(kTextCommands, token); }

WithoutUnit without_power(std::string_view text) {
  for (std::string_view power : {"^2", "^{2}", "\xC2\xB2"})
    if (text.ends_with(power)) return {text.substr(0, text.size() - power.size()), 2};
  for (std::string_view power : {"^3", "^{3}", "\xC2\xB3"})
    if (text.ends_with(power)) return {text.substr(0, text.size() - power.size()), 3};
  return {text, 1};
}

/// The power that a word such as "square" gives to a unit.
int power_of_word(std::string_view word) {
  return word.starts_with("square") ? 2 : word.starts_with("cubic") ? 3 : 1;
}

/// Units without the blanks between them ("cm", "squarefeet", "milesperhour").
bool is_unit(std::string_view text) {
  if (text.size() > kLongestUnit) return false;
  if (contains(kUnits, text) || contains(kTextUnits, text)) return true;
  for (std::string_view power : {"square", "cubic"})
    if (text.starts_with(power)) return is_unit(text.substr(power.size()));
  const size_t per = text.find("per", 1);
  return per != std::string_view::npos && is_unit(text.substr(0, per)) && is_unit(text.substr(per + 3));
}

std::string joined(const MathTokens& tokens, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) text += tokens[i];
  return text;
}

/// Text behind a number, a closed group, a matrix or pi is a unit, behind a letter only what is known as one.
bool carries_unit(const std::string& token, std::string_view unit) {
  if (is_letter_token(token)) return is_unit(unit);
  return is_digit_token(token) || token == "}" || token == ")" || token == "]" || token == "\\pi" ||
         token.starts_with("\\end{");
}

struct UnitAtEnd {
  size_t begin;  // where the answer before it ends
  int power;     // 0: there is no unit
};

/// The unit `\text{...}` (with power) that ends at `end`.
UnitAtEnd find_unit(const MathTokens& tokens, const std::vector<size_t>& match, size_t end) {
  size_t close = end;
  std::string_view power;
  if (close >= 2 && tokens[close - 2] == "^") {
    power = tokens[close - 1];
    close -= 2;
  } else if (close >= 4 && tokens[close - 4] == "^" && match[close - 1] == close - 3) {
    power = tokens[close - 2];
    close -= 4;
  }
  if (close == 0 || match[close - 1] == kNoMatch) return {end, 0};
  const size_t open = match[close - 1];
  if (open < 2 || !is_text_command(tokens[open - 1])) return {end, 0};
  const std::string content = joined(tokens, open + 1, close - 1);
  const WithoutUnit inside = without_power(content);
  const bool name = content.size() == 1 && content[0] >= 'A' && content[0] <= 'Z';
  if (name || !carries_unit(tokens[open - 2], inside.text)) return {end, 0};
  const int outside = power == "2" ? 2 : power == "3" ? 3 : 1;
  return {open - 1, std::max({outside, inside.power, power_of_word(content)})};
}

bool ends_in_command(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && is_letter(text[begin - 1])) --begin;
  return begin > 0 && begin < text.size() && text[begin - 1] == '\\';
}

/// A Greek letter at the end of the text, or a letter that is no word.
bool ends_in_variable(std::string_view text) {
  if (ends_in_command(text)) return true;
  if (!is_letter(text.back())) return false;
  const std::string_view before = text.substr(0, text.size() - 1), near = strip(before);
  const bool in_word = !before.empty() && is_letter(before.back());
  return !in_word && (near.empty() || !is_letter(near.back()) || ends_in_command(near));
}

/// First token after the variable that the answer starts with (x, x_1, f(x), \theta); 0 when there is none.
size_t after_variable(const MathTokens& t) {
  if (t.empty() || !(is_letter_token(t[0]) || (is_command(t[0]) && is_letter(t[0].back())))) return 0;
  if (t.size() > 3 && t[1] == "_") return 3;
  if (t.size() > 4 && t[1] == "(" && is_letter_token(t[2]) && t[3] == ")") return 4;
  return 1;
}

}  // namespace

WithoutUnit drop_unit_words(std::string_view text) {
  std::string_view rest = text, last_word;
  if (rest.ends_with('.')) rest.remove_suffix(1);
  int power = 0;
  while (true) {
    const WithoutUnit base = without_power(rest);
    const std::string_view word_end = strip(base.text);
    size_t begin = word_end.size();
    while (begin > 0 && is_letter(word_end[begin - 1])) --begin;
    const bool command = begin > 0 && word_end[begin - 1] == '\\';
    const std::string_view word = word_end.substr(begin);
    if (command || !contains(kUnits, word)) break;
    power = std::max({power, base.power, power_of_word(word)});
    last_word = word;
    rest = strip(word_end.substr(0, begin));
  }
  if (rest.empty() || power == 0) return {text};
  const bool group = rest.find_last_of("})]$%") == rest.size() - 1;
  const bool variable = last_word.size() > 1 && ends_in_variable(rest);  // "m g" is a product
  return is_digit(rest.back()) || group || variable ? WithoutUnit{rest, power} : WithoutUnit{text};
}

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
  while (!tokens.empty() && (tokens.back() == "." || tokens.back() == "," || tokens.back() == ";")) {
    tokens.pop_back();
  }
}

int drop_final_units(MathTokens& tokens) {
  const std::vector<size_t> match = match_braces(tokens);
  size_t end = tokens.size();
  int power = 0;
  for (UnitAtEnd unit; (unit = find_unit(tokens, match, end)).power > 0; end = unit.begin)
    power = std::max(power, unit.power);
  tokens.resize(end);
  return power;
}

void unwrap_text(MathTokens& tokens) {
  const std::vector<size_t> match = match_braces(tokens);
  std::vector<bool> dropped(tokens.size(), false);
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (!is_text_command(tokens[i]) || tokens[i + 1] != "{" || match[i + 1] == kNoMatch) continue;
    const size_t open = i + 1, close = match[open];
    dropped[i] = dropped[open] = dropped[close] = true;
    if (close - open > 4) continue;
    const std::string word = joined(tokens, open + 1, close);  // "and" and "or" have at most 3 tokens
    if (word != "and" && word != "or") continue;
    tokens[open + 1].assign(1, ',');
    std::fill(dropped.begin() + static_cast<int64_t>(open) + 2, dropped.begin() + static_cast<int64_t>(close),
              true);
  }
  MathTokens result;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!dropped[i]) result.push_back(std::move(tokens[i]));
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

void drop_assignment(MathTokens& tokens) {
  const size_t variable = after_variable(tokens);
  if (variable == 0 || variable + 1 >= tokens.size()) return;
  const bool equals = tokens[variable] == "=" && std::count(tokens.begin(), tokens.end(), "=") == 1;
  if (!equals && tokens[variable] != "\\in") return;
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<int64_t>(variable) + 1);
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
  const std::vector<size_t> match = match_braces(tokens);
  const size_t n = tokens.size();
  std::vector<int> wrapped(n, 0);
  std::vector<bool> dropped(n, false);
  auto after_argument = [&](size_t at) {
    if (at >= n || tokens[at] == "}") return n;
    if (tokens[at] == "{") return match[at] == kNoMatch ? n : match[at] + 1;
    ++wrapped[at];
    return at + 1;
  };
  for (size_t i = 0; i < n; ++i) {
    const bool root = tokens[i] == "\\sqrt";
    if (root && i + 1 < n && tokens[i + 1] != "[") after_argument(i + 1);
    if (tokens[i] == "\\frac" || tokens[i] == "\\binom") after_argument(after_argument(i + 1));
    const bool script = tokens[i] == "^" || tokens[i] == "_";
    if (script && i + 1 < n && tokens[i + 1] == "{" && match[i + 1] == i + 3) {
      dropped[i + 1] = dropped[i + 3] = true;
    }
  }
  MathTokens result;
  for (size_t i = 0; i < n; ++i) {
    if (dropped[i]) continue;
    result.insert(result.end(), static_cast<size_t>(wrapped[i]), "{");
    result.push_back(std::move(tokens[i]));
    result.insert(result.end(), static_cast<size_t>(wrapped[i]), "}");
  }
  tokens = std::move(result);
}

void merge_numbers(MathTokens& tokens) {
  MathTokens result;
  auto digit_at = [&](size_t i) { return i < tokens.size() && is_digit_token(tokens[i]); };
  for (size_t i = 0; i < tokens.size();) {
    if (!digit_at(i) && !(tokens[i] == "." && digit_at(i + 1))) {
      result.push_back(std::move(tokens[i++]));
      continue;
    }
    std::string whole, fraction;
    while (digit_at(i)) whole += tokens[i++];
    if (i < tokens.size() && tokens[i] == "." && digit_at(i + 1)) ++i;
    while (digit_at(i)) fraction += tokens[i++];
    whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
    while (fraction.ends_with('0')) fraction.pop_back();
    if (whole.empty()) whole.push_back('0');
    result.push_back(fraction.empty() ? whole : whole + "." + fraction);
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
