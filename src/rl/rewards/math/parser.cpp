#include "src/rl/rewards/math/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/rl/rewards/text.h"

namespace temper {
namespace {

constexpr auto kRelations =
    std::to_array<std::string_view>({"=", "\\approx", "<", ">", "\\le", "\\ge", "\\ne", "\\in", ":"});

template <typename List>
bool contains(const List& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool all_of(const std::vector<std::string>& relations, std::string_view one, std::string_view other) {
  return std::all_of(relations.begin(), relations.end(),
                     [&](const std::string& relation) { return relation == one || relation == other; });
}

bool is_bound(const Sum& sum) {
  if (sum.is_constant()) return true;
  const auto& terms = sum.terms();
  return terms.size() == 1 && terms.begin()->first == Monomial{{"\\infty", 1}};
}

/// Two numbers that differ by more than a twentieth are two answers.
bool may_approximate(const Sum& exact, const Sum& rounded) {
  const std::optional<Fraction> a = exact.number(), b = rounded.number();
  if (!a || !b || *a == *b) return true;
  if (*a == Fraction(0)) return false;
  const Fraction error = (*b + -*a) / *a, most(1, 20);
  return error < most && -error < most;
}

Sum joined_atom(const std::string& name, const std::vector<Sum>& parts) {
  std::string text = name + "<";
  for (const Sum& part : parts) text += part.key() + "|";
  return Sum::atom(text + ">");
}

}  // namespace

bool MathParser::is_number(size_t ahead) const {
  return at_ + ahead < tokens_.size() && is_digit(tokens_[at_ + ahead][0]);
}

bool MathParser::is_letter_at(size_t ahead) const {
  return at_ + ahead < tokens_.size() && tokens_[at_ + ahead].size() == 1 &&
         is_letter(tokens_[at_ + ahead][0]);
}

bool MathParser::skip(std::string_view token) {
  if (!is(token)) return false;
  ++at_;
  return true;
}

void MathParser::need(std::string_view token) {
  if (!skip(token)) throw NoValue{};
}

std::string MathParser::take() {
  if (done()) throw NoValue{};
  return tokens_[at_++];
}

MathParser::List MathParser::whole() {
  skip("=");
  List result = list();
  if (!done()) throw NoValue{};
  return result;
}

MathParser::List MathParser::list() {
  List result;
  do {
    result.items.push_back(item());
    if (is("\\or")) result.choice = true;
  } while (skip(",") || skip(";") || skip("\\or"));
  return result;
}

MathParser::Item MathParser::item() {
  std::vector<Sum> sides{side()};
  std::vector<std::string> relations;
  while (!done() && contains(kRelations, tokens_[at_]) && !(sets_ > 0 && is(":"))) {
    relations.push_back(take());
    sides.push_back(side());
  }
  if (relations.empty()) return {sides[0], {}};
  const std::string& first = relations[0];
  const std::optional<std::string> name = variable(sides[0]);
  std::string inequality_name;
  if (all_of(relations, "=", "\\approx")) return equality(sides, relations);
  if (all_of(relations, ":", ":")) return {joined_atom("ratio", sides), {}};
  if (first == "\\in" && sides.size() == 2 && name) return {sides[1], *name};
  if (first == "\\ne" && sides.size() == 2) {
    std::sort(sides.begin(), sides.end(), [](const Sum& a, const Sum& b) { return a.key() < b.key(); });
    return {joined_atom("ne", sides), {}};
  }
  if (all_of(relations, ">", "\\ge")) {
    std::reverse(sides.begin(), sides.end());
    std::reverse(relations.begin(), relations.end());
    for (std::string& relation : relations) relation = relation == ">" ? "<" : "\\le";
  }
  if (!all_of(relations, "<", "\\le")) throw NoValue{};
  Sum value = inequality(std::move(sides), std::move(relations), inequality_name);
  return {std::move(value), std::move(inequality_name)};
}

MathParser::Item MathParser::equality(const std::vector<Sum>& sides,
                                      const std::vector<std::string>& relations) {
  std::optional<std::string> name = variable(sides[0]);
  const size_t first = name ? 1 : 0;
  if (!name && sides.size() == 2 && sides[0].is_constant() && (name = variable(sides[1])))
    return {sides[0], *name};
  size_t end = first + 1;
  while (end < sides.size() && relations[end - 1] == "=") ++end;
  bool constant = true, equal = true;
  for (size_t i = first; i < end; ++i) {
    constant = constant && sides[i].is_constant();
    equal = equal && sides[i].key() == sides[first].key();
  }
  if (constant && !equal) throw NoValue{};
  for (size_t i = end; i < sides.size(); ++i)
    if (!may_approximate(sides[end - 1], sides[i])) throw NoValue{};
  if (equal || name) return {sides[end - 1], name.value_or("")};
  return {equation(sides[first], sides[end - 1]), {}};
}

Sum MathParser::equation(const Sum& left, const Sum& right) {
  return joined_atom("eq", {algebra_.without_scale(algebra_.subtract(left, right))});
}

/// Sides in rising order; an interval where they bound one variable.
Sum MathParser::inequality(std::vector<Sum> sides, std::vector<std::string> relations, std::string& name) {
  const Sum infinity = Sum::atom("\\infty");
  if (sides.size() == 2 && is_bound(sides[0]) && variable(sides[1])) {
    sides.push_back(infinity);
    relations.emplace_back("<");
  } else if (sides.size() == 2 && is_bound(sides[1]) && variable(sides[0])) {
    sides.insert(sides.begin(), algebra_.subtract(Sum(), infinity));
    relations.emplace(relations.begin(), "<");
  }
  const std::optional<std::string> middle = sides.size() == 3 ? variable(sides[1]) : std::nullopt;
  if (middle && is_bound(sides[0]) && is_bound(sides[2])) {
    name = *middle;
    return make_group(relations[0] == "<" ? "(" : "[", {sides[0], sides[2]}, relations[1] == "<" ? ")" : "]");
  }
  std::string kind = "rising";
  for (const std::string& relation : relations) kind += relation;
  return joined_atom(kind, sides);
}

/// What may stand before `=` as a name: a letter, a word, f(x), a tuple of them, AB; its text without an
/// index.
std::optional<std::string> MathParser::variable(const Sum& sum) const {
  const std::optional<std::string> atom = sum.name();
  if (!atom) {
    if (sum.terms().size() != 1 || sum.terms().begin()->second != Fraction(1)) return std::nullopt;
    std::string points;
    for (const auto& [factor, exponent] : sum.terms().begin()->first) {
      const bool point =
          factor.size() == 1 && factor[0] >= 'A' && factor[0] <= 'Z' && exponent == Fraction(1);
      if (!point) return std::nullopt;
      points += factor;
    }
    return points.empty() ? std::nullopt : std::optional(points);
  }
  if (const auto found = groups_.find(*atom); found != groups_.end()) {
    const Group& group = found->second;
    const bool all = std::all_of(group.parts.begin(), group.parts.end(),
                                 [this](const Sum& part) { return variable(part).has_value(); });
    return group.open == "(" && all ? std::optional<std::string>("") : std::nullopt;
  }
  if (sum.is_constant() || *atom == "\\infty" || *atom == "\\varnothing" || (*atom)[0] == '(' ||
      is_digit((*atom)[0]))
    return std::nullopt;
  const bool of_argument = atom->find_first_of("(<") != std::string::npos;
  if (of_argument)
    return (*atom)[0] == 'f' || (*atom)[0] == 'g' ? std::optional<std::string>("") : std::nullopt;
  return atom->substr(0, atom->find('_'));
}

Sum MathParser::side() {
  Sum result = sum();
  if (skip("\\choose")) result = Sum::atom("binom(" + result.key() + "|" + sum().key() + ")");
  std::vector<Sum> united{result};
  while (skip("\\cup")) united.push_back(sum());
  if (united.size() > 1) {
    std::sort(united.begin(), united.end(), [](const Sum& a, const Sum& b) { return a.key() < b.key(); });
    result = joined_atom("cup", united);
  }
  while (is("\\cap") || is("\\setminus")) {
    const std::string operation = take();
    result = joined_atom(operation, {result, sum()});
  }
  return result;
}

Sum MathParser::sum() {
  Sum result;
  bool first = true;
  while (!done()) {
    bool minus = false;
    if (is("+") || is("-") || is("\\pm") || is("\\mp")) {
      const std::string sign = take();
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
  if (done()) return false;
  const std::string& token = tokens_[at_];
  if (token == "|") return bars_ == 0 && sets_ == 0;
  if (token == "(" || token == "[" || token == "{" || is_letter_at()) return true;
  return is_command(token) && !token.starts_with("\\end{") && !contains(kNever, token);
}

Sum MathParser::product() {
  Sum result = factor();
  bool divided = false;
  while (!done()) {
    if (skip("\\cdot")) {
      result = algebra_.multiply(result, factor());
      divided = false;
    } else if (skip("/")) {
      const bool plain = is_number();
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
  if (skip("-")) return algebra_.subtract(Sum(), factor());
  return postfix(primary());
}

Sum MathParser::postfix(Sum base) {
  constexpr int64_t kLargestFactorial = 20;
  while (!done()) {
    if (skip("^")) {
      base = algebra_.power(base, exponent());
    } else if (skip("!")) {
      const std::optional<Fraction> number = base.number();
      const bool small =
          number && number->whole() && !number->negative() && number->above() <= kLargestFactorial;
      Fraction product = 1;
      for (int64_t i = 2; small && i <= number->above(); ++i) product = product * Fraction(i);
      base = small ? Sum(product) : joined_atom("factorial", {base});
    } else if (is("_") && base.number()) {
      ++at_;
      base = joined_atom("base", {base, exponent()});
    } else {
      return base;
    }
  }
  return base;
}

Sum MathParser::exponent() {
  if (skip("-")) return algebra_.subtract(Sum(), primary());
  skip("+");
  return primary();
}

}  // namespace temper
