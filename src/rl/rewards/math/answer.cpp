#include "src/rl/rewards/math/answer.h"

#include <algorithm>

#include "src/rl/rewards/math/passes.h"
#include "src/rl/rewards/math/tokens.h"
#include "src/rl/rewards/math/units.h"
#include "src/rl/rewards/math/value.h"
#include "src/rl/rewards/text.h"

namespace temper {
namespace {

/// Content up to the brace that closes the one before `text`; escaped braces do not count.
std::optional<std::string_view> braced(std::string_view text) {
  int64_t depth = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      return text.substr(0, i);
    }
  }
  return std::nullopt;
}

std::string_view without_blanks_before(std::string_view text) {
  while (!text.empty() && is_space(text[0])) text.remove_prefix(1);
  return text;
}

/// The content of a box without braces: a number directly behind it, or the rest of the line.
std::optional<std::string_view> bare_box(std::string_view rest, bool spaced) {
  const std::string_view line = rest.substr(0, rest.find_first_of("$\n"));
  if (!line.empty() && (spaced || line[0] == '\\')) return line;
  size_t end = line.starts_with('-') || line.starts_with('+');
  while (end < line.size() && (is_digit(line[end]) || line[end] == '.' || line[end] == ',')) ++end;
  const std::string_view number = line.substr(0, end);
  return number.find_first_of("0123456789") == std::string_view::npos ? std::nullopt : std::optional(number);
}

struct NormalAnswer {
  MathTokens tokens;               // without the name, for a comparison as they are
  std::string name;                // x of `x = 5`
  std::optional<MathValue> value;  // nothing: only the tokens say what it is
  std::vector<std::string> units;
  bool percent = false;
};

/// Without braces, or a \text, around the whole.
std::string_view unwrapped(std::string_view text) {
  text = strip(text);
  for (const std::string_view wrapper : {"\\text{", "\\mathrm{", "{"}) {
    if (!text.starts_with(wrapper)) continue;
    const std::string_view rest = text.substr(wrapper.size());
    const std::optional<std::string_view> inside = braced(rest);
    if (inside && inside->size() + 1 == rest.size()) return strip(*inside);
  }
  return text;
}

NormalAnswer normal_answer(std::string_view answer) {
  NormalAnswer result;
  const WithoutUnit plain = drop_unit_words(unwrapped(unwrapped(math_tail(answer))));
  MathTokens tokens = math_tokens(plain.text);
  drop_degrees(tokens);
  drop_final_marks(tokens);
  drop_outer_braces(tokens);
  result.units = drop_text_units(tokens);
  if (!plain.unit.empty()) result.units.push_back(plain.unit);
  result.percent = std::erase(result.units, "%") > 0 || plain.text.find('%') != std::string_view::npos;
  unwrap_text(tokens);
  drop_final_marks(tokens);
  drop_outer_braces(tokens);
  join_commas(tokens);
  resolve_commas(tokens);
  brace_arguments(tokens);
  merge_numbers(tokens);
  write_fractions(tokens);
  unwrap_choice(tokens);
  result.value = math_value(tokens);
  result.name = drop_assignment(tokens);
  result.tokens = std::move(tokens);
  return result;
}

/// One unit may be left out, or stand once for all parts.
bool same_units(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  if (a.empty() || b.empty()) return true;
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), units_agree);
}

bool differs_by_percent(const NormalAnswer& percent, const NormalAnswer& plain) {
  if (!percent.percent || plain.percent || !percent.value || !plain.value) return false;
  const std::optional<Fraction> hundredfold = percent.value->number, value = plain.value->number;
  try {
    return hundredfold && value && *hundredfold / Fraction(100) == *value;
  } catch (const NoValue&) {
    return false;
  }
}

}  // namespace

std::string_view math_tail(std::string_view text) {
  return text.substr(text.size() - std::min(text.size(), kMathTailBytes));
}

std::optional<std::string_view> last_boxed(std::string_view text) {
  text = math_tail(text);
  std::string_view rest;
  bool found = false;
  for (const std::string_view box : {"\\boxed", "\\fbox", "\\framebox"}) {
    const size_t at = text.rfind(box);
    if (at == std::string_view::npos || (found && at < static_cast<size_t>(rest.data() - text.data())))
      continue;
    rest = text.substr(at + box.size());
    found = true;
  }
  if (!found) return std::nullopt;
  const size_t blanks = rest.size() - without_blanks_before(rest).size();
  rest.remove_prefix(blanks);
  if (!rest.empty() && rest[0] == '{') return braced(rest.substr(1));
  return bare_box(rest, blanks > 0);
}

std::string normal_math_answer(std::string_view answer) {
  std::string text;
  bool after_command = false;
  for (const std::string& token : normal_answer(answer).tokens) {
    // A command name would swallow a letter that follows it: keep them apart, as LaTeX has to.
    if (after_command && is_letter(token[0])) text += ' ';
    text += token;
    after_command = is_command(token) && is_letter(token.back());
  }
  return text;
}

bool math_answers_equal(std::string_view a, std::string_view b) {
  const NormalAnswer left = normal_answer(a), right = normal_answer(b);
  if (left.tokens.empty() || right.tokens.empty() || !same_units(left.units, right.units)) return false;
  const bool named = !left.name.empty() && !right.name.empty() && left.name != right.name;
  if (left.tokens == right.tokens && !named) return true;
  if (left.value && right.value && values_equal(*left.value, *right.value)) return true;
  return differs_by_percent(left, right) || differs_by_percent(right, left);
}

}  // namespace temper
