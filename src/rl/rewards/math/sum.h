#pragma once
// Exact values as sums of products: coefficient * atom^exponent * ... with fractions as coefficients and
// exponents. An atom is a name (x, \pi), a prime under a root (#2), or the text of something that is compared
// whole: a function of an argument, a tuple, a sum inside of a product. Equal sums have equal `key`s.
//   sqrt(12) = 2 * #3^(1/2),   1/(1 + sqrt 2) = -1 + #2^(1/2),   (2x + 2)/3 = 2/3 + 2/3 * x
// Products and powers of sums with variables are not multiplied out: x(x+1) is another answer than x^2+x.
// All work counts against a budget and all sizes are bounded; beyond them NoValue is thrown.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "src/rl/rewards/math/fraction.h"

namespace temper {

using Monomial = std::map<std::string, Fraction>;  // atom -> exponent

class Sum {
 public:
  Sum() = default;              // 0
  Sum(const Fraction& number);  // NOLINT: numbers are sums
  static Sum atom(std::string name);

  const std::map<Monomial, Fraction>& terms() const { return terms_; }
  std::string key() const;
  std::optional<Fraction> number() const;   // when it is one
  std::optional<std::string> name() const;  // when it is one atom
  bool is_constant() const;                 // without variables: numbers, roots, pi, e, i
  void add(Monomial product, const Fraction& coefficient);

 private:
  std::map<Monomial, Fraction> terms_;
};

class SumAlgebra {
 public:
  Sum add(const Sum& a, const Sum& b);
  Sum subtract(const Sum& a, const Sum& b);
  Sum multiply(const Sum& a, const Sum& b);
  Sum divide(const Sum& a, const Sum& b);
  Sum power(const Sum& base, const Sum& exponent);
  Sum root(const Sum& base, int64_t degree);
  /// The sum divided by the coefficient of its first term.
  Sum without_scale(const Sum& a);

 private:
  Sum distribute(const Sum& a, const Sum& b);
  Sum as_product(const Sum& a);
  Sum inverse(const Sum& a);
  Sum raised(const Sum& base, const Fraction& exponent);
  Sum number_root(const Fraction& base, const Fraction& exponent);
  void spend(size_t work);

  int64_t left_ = 20000;
};

}  // namespace temper
