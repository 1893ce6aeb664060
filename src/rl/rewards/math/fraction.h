#pragma once
// Exact fractions of whole numbers up to 2^62; an operation whose result is larger, or has no value (1/0),
// throws NoValue.

#include <compare>
#include <cstdint>
#include <string>

namespace temper {

/// Thrown inside of the comparison of answers: this one has no value that the limits allow to find.
struct NoValue {};

class Fraction {
 public:
  Fraction(int64_t whole = 0) : above_(whole) {}  // NOLINT: whole numbers are fractions
  Fraction(int64_t above, int64_t below);

  int64_t above() const { return above_; }
  int64_t below() const { return below_; }  // > 0
  bool whole() const { return below_ == 1; }
  bool negative() const { return above_ < 0; }
  std::string text() const;  // 3 or -1/2

  Fraction operator+(const Fraction& other) const;
  Fraction operator-() const { return {-above_, below_}; }
  Fraction operator*(const Fraction& other) const;
  Fraction operator/(const Fraction& other) const;
  Fraction power(int64_t exponent) const;
  /// The largest whole number that is not larger.
  int64_t floor() const;
  bool operator==(const Fraction&) const = default;
  bool operator<(const Fraction& other) const;  // by value

 private:
  int64_t above_, below_ = 1;
};

}  // namespace temper
