#include "src/rl/rewards/math/fraction.h"

#include <fmt/format.h>

#include <numeric>

namespace temper {
namespace {

__extension__ using Int128 = __int128;
constexpr int64_t kLargest = int64_t{1} << 62;

Fraction reduced(Int128 above, Int128 below) {
  if (below == 0) throw NoValue{};
  Int128 a = above < 0 ? -above : above, b = below < 0 ? -below : below;
  while (b != 0) {
    const Int128 rest = a % b;
    a = b;
    b = rest;
  }
  above /= below < 0 ? -a : a;
  below = (below < 0 ? -below : below) / a;
  if (above > kLargest || above < -kLargest || below > kLargest) throw NoValue{};
  Fraction result(static_cast<int64_t>(above));
  return below == 1 ? result : Fraction(static_cast<int64_t>(above), static_cast<int64_t>(below));
}

}  // namespace

Fraction::Fraction(int64_t above, int64_t below) : above_(above), below_(below) {
  if (below_ == 0) throw NoValue{};
  const int64_t divisor = std::gcd(above_, below_) * (below_ < 0 ? -1 : 1);
  above_ /= divisor;
  below_ /= divisor;
}

std::string Fraction::text() const {
  return below_ == 1 ? fmt::format("{}", above_) : fmt::format("{}/{}", above_, below_);
}

Fraction Fraction::operator+(const Fraction& other) const {
  return reduced(Int128{above_} * other.below_ + Int128{other.above_} * below_,
                 Int128{below_} * other.below_);
}

Fraction Fraction::operator*(const Fraction& other) const {
  return reduced(Int128{above_} * other.above_, Int128{below_} * other.below_);
}

Fraction Fraction::operator/(const Fraction& other) const {
  return reduced(Int128{above_} * other.below_, Int128{below_} * other.above_);
}

Fraction Fraction::power(int64_t exponent) const {
  constexpr int64_t kMost = 64;
  if (exponent > kMost || exponent < -kMost) throw NoValue{};
  Fraction result = 1;
  for (int64_t i = exponent; i != 0; i += i < 0 ? 1 : -1) result = i < 0 ? result / *this : result * *this;
  return result;
}

int64_t Fraction::floor() const { return above_ / below_ - (above_ % below_ < 0 ? 1 : 0); }

bool Fraction::operator<(const Fraction& other) const {
  return Int128{above_} * other.below_ < Int128{other.above_} * below_;
}

}  // namespace temper
