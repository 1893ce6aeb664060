#include "src/rl/rewards/math/parser.h"

#include <algorithm>
#include <array>

#include "src/rl/rewards/text.h"

namespace temper {
namespace {

constexpr auto kRelations =
    std::to_array<std::string_view>({"=", "\\approx", "<", ">", "\\le", "\\ge", "\\ne", "\\in", ":"});

}  // namespace

MathList MathParser::whole() {
  c_.skip("=");
  MathList result = list();
  if (!c_.done()) throw NoValue{};
  return result;
}

MathList MathParser::list() {
  MathList result;
  do {
    result.items.push_back(item());
    if (c_.is("\\or")) result.choice = true;
  } while (c_.skip(",") || c_.skip(";") || c_.skip("\\or"));
  return result;
}

MathItem MathParser::item() {
  std::vector<Sum> sides{side()};
  std::vector<std::string> relations;
  while (!c_.done() && contains(kRelations, c_.token()) && !(c_.sets > 0 && c_.is(":"))) {
    relations.push_back(c_.take());
    sides.push_back(side());
  }
  if (relations.empty()) return {sides[0], {}};
  return relations_.item(std::move(sides), std::move(relations));
}

Sum MathParser::side() {
  Sum result = sum();
  if (c_.skip("\\choose")) result = Sum::atom("binom(" + result.key() + "|" + sum().key() + ")");
  std::vector<Sum> united{result};
  while (c_.skip("\\cup")) united.push_back(sum());
  if (united.size() > 1) {
    std::sort(united.begin(), united.end(), [](const Sum& a, const Sum& b) { return a.key() < b.key(); });
    result = joined_atom("cup", united);
  }
  while (c_.is("\\cap") || c_.is("\\setminus")) {
    const std::string operation = c_.take();
    result = joined_atom(operation, {result, sum()});
  }
  return result;
}

Sum MathParser::sum() {
  Sum result;
  bool first = true;
  while (!c_.done()) {
    bool minus = false;
    if (c_.is("+") || c_.is("-") || c_.is("\\pm") || c_.is("\\mp")) {
      const std::string sign = c_.take();
      minus = sign == "-" || (sign == "\\pm" && !plus_) || (sign == "\\mp" && plus_);
    } else if (!first) {
      return result;
    }
    const Sum next = product();
    result = minus ? algebra_.subtract(result, next) : algebra_.add(result, next);
    first = false;
  }
  if (first) throw NoValue{};
  return result;
}

bool MathParser::starts_factor() const {
  constexpr auto kNever = std::to_array<std::string_view>(
      {"\\cdot", "\\cup", "\\cap", "\\setminus", "\\pm", "\\mp", "\\or", "\\le", "\\ge", "\\ne", "\\approx",
       "\\in", "\\}", "\\\\", "\\rangle", "\\rfloor", "\\rceil", "\\choose"});
  if (c_.done()) return false;
  const std::string& token = c_.token();
  if (token == "|") return c_.bars == 0 && c_.sets == 0;
  if (token == "(" || token == "[" || token == "{" || c_.is_letter_at()) return true;
  return is_command(token) && !token.starts_with("\\end{") && !contains(kNever, token);
}

Sum MathParser::product() {
  Sum result = factor();
  bool divided = false;
  while (!c_.done()) {
    if (c_.skip("\\cdot")) {
      result = algebra_.multiply(result, factor());
      divided = false;
    } else if (c_.skip("/")) {
      const bool plain = c_.is_number();
      result = algebra_.divide(result, factor());
      divided = !plain;
    } else if (starts_factor()) {
      if (divided) throw NoValue{};
      result = algebra_.multiply(result, factor());
    } else {
      return result;
    }
  }
  return result;
}

Sum MathParser::factor() {
  if (c_.skip("-")) return algebra_.subtract(Sum(), factor());
  return postfix(primary_.primary());
}

Sum MathParser::postfix(Sum base) {
  constexpr int64_t kLargestFactorial = 20;
  while (!c_.done()) {
    if (c_.skip("^")) {
      base = algebra_.power(base, exponent());
    } else if (c_.skip("!")) {
      const std::optional<Fraction> number = base.number();
      const bool small =
          number && number->whole() && !number->negative() && number->above() <= kLargestFactorial;
      Fraction product = 1;
      for (int64_t i = 2; small && i <= number->above(); ++i) product = product * Fraction(i);
      base = small ? Sum(product) : joined_atom("factorial", {base});
    } else if (c_.is("_") && base.number()) {
      c_.advance();
      base = joined_atom("base", {base, exponent()});
    } else {
      return base;
    }
  }
  return base;
}

Sum MathParser::exponent() {
  if (c_.skip("-")) return algebra_.subtract(Sum(), primary_.primary());
  c_.skip("+");
  return primary_.primary();
}

}  // namespace temper
