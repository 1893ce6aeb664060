#pragma once
// Estimators of KL(policy || reference) from one sampled token, with d = lp - lf (log-probs of the policy and
// of the reference):
//   k1  d                 gradient 1           abs  |d|         gradient sign(d), 0 at 0
//   k2  d^2 / 2           gradient d           k3   e^-d - 1+d  gradient 1 - e^-d
//   k1+, k3+: value of k1, k3 with the gradient of k2 (straight-through).

namespace temper {

enum class KlEstimator { k1, abs, k2, k3, k1_straight, k3_straight };  // order of kKlEstimators

struct KlTerm {
  double value;
  double gradient;  // d value / d lp when used as a loss
};

KlTerm kl_term(KlEstimator estimator, double logprob, double ref_logprob);

}  // namespace temper
