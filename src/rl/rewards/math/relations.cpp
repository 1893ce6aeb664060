#include "src/rl/rewards/math/relations.h"

#include <algorithm>

#include "src/rl/rewards/text.h"

namespace temper {
namespace {

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

}  // namespace

Sum joined_atom(const std::string& name, const std::vector<Sum>& parts) {
  std::string text = name + "<";
  for (const Sum& part : parts) text += part.key() + "|";
  return Sum::atom(text + ">");
}

Sum MathGroups::make(std::string open, std::vector<Sum> parts, const std::string& close) {
  if (open == "\\{") {
    std::sort(parts.begin(), parts.end(), [](const Sum& a, const Sum& b) { return a.key() < b.key(); });
    const auto same = [](const Sum& a, const Sum& b) { return a.key() == b.key(); };
    parts.erase(std::unique(parts.begin(), parts.end(), same), parts.end());
  }
  std::string text = "group" + open;
  for (const Sum& part : parts) text += part.key() + "|";
  text += close;
  groups_[text] = {std::move(open), std::move(parts)};
  return Sum::atom(text);
}

const std::vector<Sum>* MathGroups::set_elements(const Sum& sum) const {
  const std::optional<std::string> name = sum.name();
  const auto found = name ? groups_.find(*name) : groups_.end();
  return found != groups_.end() && found->second.open == "\\{" ? &found->second.parts : nullptr;
}

std::optional<std::string> MathGroups::variable(const Sum& sum) const {
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

MathItem MathRelations::item(std::vector<Sum> sides, std::vector<std::string> relations) {
  const std::string& first = relations[0];
  const std::optional<std::string> name = groups_.variable(sides[0]);
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
  return inequality(std::move(sides), std::move(relations));
}

MathItem MathRelations::equality(const std::vector<Sum>& sides, const std::vector<std::string>& relations) {
  std::optional<std::string> name = groups_.variable(sides[0]);
  const size_t first = name ? 1 : 0;
  if (!name && sides.size() == 2 && sides[0].is_constant() && (name = groups_.variable(sides[1])))
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

Sum MathRelations::equation(const Sum& left, const Sum& right) {
  return joined_atom("eq", {algebra_.without_scale(algebra_.subtract(left, right))});
}

/// Sides in rising order; an interval where they bound one variable.
MathItem MathRelations::inequality(std::vector<Sum> sides, std::vector<std::string> relations) {
  const Sum infinity = Sum::atom("\\infty");
  if (sides.size() == 2 && is_bound(sides[0]) && groups_.variable(sides[1])) {
    sides.push_back(infinity);
    relations.emplace_back("<");
  } else if (sides.size() == 2 && is_bound(sides[1]) && groups_.variable(sides[0])) {
    sides.insert(sides.begin(), algebra_.subtract(Sum(), infinity));
    relations.emplace(relations.begin(), "<");
  }
  const std::optional<std::string> middle = sides.size() == 3 ? groups_.variable(sides[1]) : std::nullopt;
  if (middle && is_bound(sides[0]) && is_bound(sides[2]))
    return {
        groups_.make(relations[0] == "<" ? "(" : "[", {sides[0], sides[2]}, relations[1] == "<" ? ")" : "]"),
        *middle};
  std::string kind = "rising";
  for (const std::string& relation : relations) kind += relation;
  return {joined_atom(kind, sides), {}};
}

}  // namespace temper
