#include "src/rl/kl.h"

#include <algorithm>
#include <cmath>

#include "src/core/check.h"

namespace temper {
namespace {

KlTerm k3_term(double d, const KlLimits& limits) {
  const bool bounded = limits.exponent > 0 && std::fabs(d) > limits.exponent;
  const double exponent = bounded ? std::copysign(limits.exponent, -d) : -d;
  // expm1 keeps the digits of e^-d - 1 near d = 0, where most tokens are.
  const double less_one = std::expm1(exponent), value = less_one - exponent;
  const bool clamped = bounded || (limits.value > 0 && value > limits.value);
  return {limits.value > 0 ? std::min(value, limits.value) : value, clamped ? 0 : -less_one, clamped};
}

}  // namespace

KlTerm kl_term(KlEstimator estimator, double logprob, double ref_logprob, const KlLimits& limits) {
  const double d = logprob - ref_logprob;
  switch (estimator) {
    case KlEstimator::k1:
      return {d, 1};
    case KlEstimator::abs:
      return {std::fabs(d), static_cast<double>((d > 0) - (d < 0))};
    case KlEstimator::k2:
      return {d * d / 2, d};
    case KlEstimator::k1_straight:
      return {d, d};
    case KlEstimator::k3:
      return k3_term(d, limits);
    case KlEstimator::k3_straight: {
      const KlTerm k3 = k3_term(d, limits);
      return {k3.value, d, k3.clamped};
    }
  }
  CHECK(false, "unknown KL estimator {}", static_cast<int>(estimator));
}

}  // namespace temper
