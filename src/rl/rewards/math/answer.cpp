#include "src/rl/rewards/math/answer.h"

#include <algorithm>

#include "src/rl/rewards/math/number.h"
#include "src/rl/rewards/math/passes.h"
#include "src/rl/rewards/math/tokens.h"
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

struct NormalAnswer {
  MathTokens tokens;
  int unit_power;  // 0: it has no unit
};

NormalAnswer normal_answer(std::string_view answer) {
  const WithoutUnit plain = drop_unit_words(strip(math_tail(answer)));
  MathTokens tokens = math_tokens(plain.text);
  drop_degrees(tokens);
  drop_final_marks(tokens);
  const int power = std::max(plain.power, drop_final_units(tokens));
  unwrap_text(tokens);
  drop_final_marks(tokens);
  drop_outer_braces(tokens);
  drop_assignment(tokens);
  resolve_commas(tokens);
  brace_arguments(tokens);
  merge_numbers(tokens);
  write_fractions(tokens);
  unwrap_choice(tokens);
  return {std::move(tokens), power};
}

}  // namespace

std::string_view math_tail(std::string_view text) {
  return text.substr(text.size() - std::min(text.size(), kMathTailBytes));
}

std::optional<std::string_view> last_boxed(std::string_view text) {
  text = math_tail(text);
  const size_t boxed = text.rfind("\\boxed"), fbox = text.rfind("\\fbox");
  const bool use_fbox = boxed == std::string_view::npos || (fbox != std::string_view::npos && fbox > boxed);
  const size_t at = use_fbox ? fbox : boxed;
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(at + (use_fbox ? 5 : 6));
  const bool spaced = !rest.empty() && rest[0] == ' ';
  while (!rest.empty() && rest[0] == ' ') rest.remove_prefix(1);
  if (!rest.empty() && rest[0] == '{') return braced(rest.substr(1));
  std::string_view line = rest.substr(0, rest.find_first_of("$\n"));
  return spaced && !line.empty() ? std::optional(line) : std::nullopt;
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
  if (left.tokens.empty() || right.tokens.empty()) return false;
  if (left.unit_power > 0 && right.unit_power > 0 && left.unit_power != right.unit_power) return false;
  if (left.tokens == right.tokens) return true;
  const std::optional<Rational> x = rational_value(left.tokens), y = rational_value(right.tokens);
  return x && y && x->numerator * y->denominator == y->numerator * x->denominator;
}

}  // namespace temper
