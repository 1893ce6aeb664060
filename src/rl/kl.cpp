#include "src/rl/kl.h"

#include <cmath>

#include "src/core/check.h"

namespace temper {

KlTerm kl_term(KlEstimator estimator, double logprob, double ref_logprob) {
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
    // expm1 keeps the digits of e^-d - 1 near d = 0, where most tokens are.
    case KlEstimator::k3:
      return {std::expm1(-d) + d, -std::expm1(-d)};
    case KlEstimator::k3_straight:
      return {std::expm1(-d) + d, d};
  }
  CHECK(false, "unknown KL estimator {}", static_cast<int>(estimator));
}

}  // namespace temper
