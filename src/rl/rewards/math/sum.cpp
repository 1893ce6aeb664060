#include "src/rl/rewards/math/sum.h"

#include <fmt/format.h>

#include <algorithm>

namespace temper {
namespace {

constexpr size_t kMostTerms = 64, kLongestKey = 4096;
constexpr const char* kUnit = "i";  // i^2 = -1

bool is_constant_atom(const std::string& atom) {
  return atom[0] == '#' || atom == "\\pi" || atom == "e" || atom == kUnit;
}

bool is_positive_atom(const std::string& atom) { return atom[0] == '#' || atom == "\\pi" || atom == "e"; }

/// Moves whole powers of primes, and i^2, into the coefficient.
void simplify(Monomial& product, Fraction& coefficient) {
  for (auto at = product.begin(); at != product.end();) {
    Fraction& exponent = at->second;
    if (at->first[0] == '#') {
      const int64_t whole = exponent.floor();
      coefficient = coefficient * Fraction(std::stoll(at->first.substr(1))).power(whole);
      exponent = exponent + Fraction(-whole);
    } else if (at->first == kUnit && exponent.whole()) {
      const int64_t rest = ((exponent.above() % 4) + 4) % 4;
      if (rest >= 2) coefficient = -coefficient;
      exponent = rest % 2;
    }
    at = exponent == Fraction(0) ? product.erase(at) : std::next(at);
  }
}

}  // namespace

Sum::Sum(const Fraction& number) { add({}, number); }

Sum Sum::atom(std::string name) {
  if (name.size() > kLongestKey) throw NoValue{};
  Sum result;
  result.add({{std::move(name), 1}}, 1);
  return result;
}

void Sum::add(Monomial product, const Fraction& added) {
  Fraction coefficient = added;
  simplify(product, coefficient);
  Fraction& sum = terms_[product];
  sum = sum + coefficient;
  if (sum == Fraction(0)) terms_.erase(product);
  if (terms_.size() > kMostTerms) throw NoValue{};
}

std::string Sum::key() const {
  if (terms_.empty()) return "0";
  std::string key;
  for (const auto& [product, coefficient] : terms_) {
    key += (key.empty() ? "" : "+") + coefficient.text();
    for (const auto& [atom, exponent] : product) key += fmt::format("*{}^{}", atom, exponent.text());
    if (key.size() > kLongestKey) throw NoValue{};
  }
  return key;
}

std::optional<Fraction> Sum::number() const {
  if (terms_.empty()) return Fraction(0);
  if (terms_.size() == 1 && terms_.begin()->first.empty()) return terms_.begin()->second;
  return std::nullopt;
}

std::optional<std::string> Sum::name() const {
  if (terms_.size() != 1 || terms_.begin()->second != Fraction(1)) return std::nullopt;
  const Monomial& product = terms_.begin()->first;
  if (product.size() != 1 || product.begin()->second != Fraction(1)) return std::nullopt;
  return product.begin()->first;
}

bool Sum::is_constant() const {
  return std::all_of(terms_.begin(), terms_.end(), [](const auto& term) {
    return std::all_of(term.first.begin(), term.first.end(),
                       [](const auto& factor) { return is_constant_atom(factor.first); });
  });
}

void SumAlgebra::spend(size_t work) {
  left_ -= static_cast<int64_t>(work);
  if (left_ < 0) throw NoValue{};
}

Sum SumAlgebra::add(const Sum& a, const Sum& b) {
  spend(a.terms().size() + b.terms().size());
  Sum result = a;
  for (const auto& [product, coefficient] : b.terms()) result.add(product, coefficient);
  return result;
}

Sum SumAlgebra::subtract(const Sum& a, const Sum& b) { return add(a, distribute(b, Fraction(-1))); }

Sum SumAlgebra::distribute(const Sum& a, const Sum& b) {
  Sum result;
  for (const auto& [left, x] : a.terms()) {
    for (const auto& [right, y] : b.terms()) {
      spend(1 + left.size() + right.size());
      Monomial product = left;
      for (const auto& [atom, exponent] : right) product[atom] = product[atom] + exponent;
      result.add(std::move(product), x * y);
    }
  }
  return result;
}

Sum SumAlgebra::without_scale(const Sum& a) {
  return a.terms().empty() ? a : distribute(a, Fraction(1) / a.terms().begin()->second);
}

Sum SumAlgebra::as_product(const Sum& a) {
  if (a.terms().size() < 2) return a;
  Sum result;
  result.add({{"(" + without_scale(a).key() + ")", 1}}, a.terms().begin()->second);
  return result;
}

Sum SumAlgebra::multiply(const Sum& a, const Sum& b) {
  const bool plain = a.terms().size() < 2 && b.terms().size() < 2;
  if (plain || a.is_constant() || b.is_constant()) return distribute(a, b);
  return distribute(as_product(a), as_product(b));
}

Sum SumAlgebra::inverse(const Sum& a) {
  const Sum product = as_product(a);
  if (product.terms().empty()) throw NoValue{};
  Monomial factors = product.terms().begin()->first;
  for (auto& [atom, exponent] : factors) exponent = -exponent;
  Sum result;
  result.add(std::move(factors), Fraction(1) / product.terms().begin()->second);
  return result;
}

Sum SumAlgebra::divide(const Sum& a, const Sum& b) {
  if (b.is_constant() && b.terms().size() == 2) {  // a/(p + q) = a(p - q)/(p^2 - q^2)
    Sum other;
    const auto first = b.terms().begin(), second = std::next(first);
    other.add(first->first, first->second);
    other.add(second->first, -second->second);
    const Sum below = distribute(b, other);
    if (below.terms().size() == 1) return multiply(multiply(a, other), inverse(below));
  }
  return multiply(a, inverse(b));
}

/// The positive root of a number as a product of primes under roots.
Sum SumAlgebra::number_root(const Fraction& base, const Fraction& exponent) {
  constexpr int64_t kLargestRadicand = 10000000000;
  Sum result = Fraction(1);
  for (int64_t side : {base.above(), base.below()}) {
    if (side > kLargestRadicand) throw NoValue{};
    const Fraction signed_exponent = side == base.above() ? exponent : -exponent;
    Monomial product;
    for (int64_t prime = 2; side > 1; ++prime) {
      if (prime * prime > side) prime = side;
      int64_t count = 0;
      for (; side % prime == 0; side /= prime) ++count;
      if (count > 0) product[fmt::format("#{}", prime)] = signed_exponent * Fraction(count);
    }
    Sum factor;
    factor.add(std::move(product), 1);
    result = distribute(result, factor);
    if (base.above() == base.below()) break;
  }
  spend(100);
  return result;
}

Sum SumAlgebra::raised(const Sum& base, const Fraction& exponent) {
  const auto& [product, coefficient] = *base.terms().begin();
  const bool odd_root = exponent.below() % 2 == 1;
  const bool square = exponent.below() == 2;
  if (!exponent.whole() && coefficient.negative() && !odd_root && !square) throw NoValue{};
  Sum result;
  Monomial factors;
  for (const auto& [atom, power] : product) {
    if (!exponent.whole() && power != Fraction(1) && !is_positive_atom(atom)) throw NoValue{};
    factors[atom] = power * exponent;
  }
  if (exponent.whole()) {
    result.add(std::move(factors), coefficient.power(exponent.above()));
    return result;
  }
  const Fraction size = coefficient.negative() ? -coefficient : coefficient;
  result.add(std::move(factors), 1);
  result = distribute(result, number_root(size, exponent));
  if (!coefficient.negative()) return result;
  if (odd_root) return distribute(result, Fraction(exponent.above() % 2 == 0 ? 1 : -1));
  Sum turned;
  turned.add({{kUnit, exponent.above()}}, 1);
  return distribute(result, turned);
}

Sum SumAlgebra::power(const Sum& base, const Sum& exponent) {
  constexpr int64_t kMostProducts = 6;
  const std::optional<Fraction> value = exponent.number();
  const Sum whole = Sum::atom("(" + base.key() + ")^(" + exponent.key() + ")");
  if (!value) return whole;
  if (*value == Fraction(0)) return base.terms().empty() ? throw NoValue{} : Sum(Fraction(1));
  if (base.terms().empty()) return value->negative() ? throw NoValue{} : base;
  const bool many = base.terms().size() > 1;
  if (many && !value->whole()) return whole;
  if (many && base.is_constant()) {
    const int64_t count = value->above() < 0 ? -value->above() : value->above();
    if (count > kMostProducts) return whole;
    Sum product = base;
    for (int64_t i = 1; i < count; ++i) product = distribute(product, base);
    return value->negative() ? divide(Fraction(1), product) : product;
  }
  try {
    return raised(as_product(base), *value);
  } catch (const NoValue&) {
    spend(1);
    return whole;
  }
}

Sum SumAlgebra::root(const Sum& base, int64_t degree) { return power(base, Fraction(1, degree)); }

}  // namespace temper
