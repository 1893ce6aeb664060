#pragma once
// Estimators of KL(policy || reference) from one sampled token, with d = lp - lf (log-probs of the policy and
// of the reference):
//   k1  d                 gradient 1           abs  |d|         gradient sign(d), 0 at 0
//   k2  d^2 / 2           gradient d           k3   e^-d - 1+d  gradient 1 - e^-d
//   k1+, k3+: value of k1, k3 with the gradient of k2 (straight-through).
// The exponential of k3 is held: one token whose log-prob fell by 90 would have a gradient of e^90. Where a
// limit acts, k3 has gradient 0 and k3+ keeps that of k2; each boundary is inclusive for the gradient.

namespace temper {

enum class KlEstimator { k1, abs, k2, k3, k1_straight, k3_straight };  // order of kKlEstimators

struct KlTerm {
  double value;
  double gradient;       // d value / d lp when used as a loss
  bool clamped = false;  // by one of KlLimits
};

/// The limits of k3 and k3+: the largest |d| in its formula, and the largest value. 0: off.
struct KlLimits {
  double exponent = 0, value = 0;
};

KlTerm kl_term(KlEstimator estimator, double logprob, double ref_logprob, const KlLimits& limits);

}  // namespace temper
