#pragma once
// GRPO: PPO-clip on the token ratio with the group-normalised advantage A, plus a KL and an entropy term.
//   rho = exp(clamp(lp - lo, -c, c)),  pg = max(-A rho, -A clip(rho, 1 - el, 1 + eh))
//   l = w pg + kl_coef k(lp, lf) - entropy_coef H;   a = w d pg / d lp = -w A rho where the first branch
//   holds w = min(exp(clamp(lo - lb, -20, 20)), tis_cap) for tokens that other weights sampled (lb), else 1
// Every boundary is inclusive for the gradient; A = 0 gives pg = 0 and a = 0; tokens of weight 0 are selected
// away, never multiplied. With kl_in = "reward" the KL goes into the reward and the loss has no KL term. c
// bounds the exponent of k3 too.

#include "src/config/algorithm_config.h"
#include "src/rl/advantage.h"
#include "src/rl/algorithm.h"

namespace temper {

class Grpo final : public Algorithm {
 public:
  /// Error(Exit::usage) names the key of an illegal value.
  explicit Grpo(const AlgorithmConfig& config);

  void shape_rewards(std::span<Group> groups) const override;
  void advantages(std::span<Group> groups) const override;
  LossResult loss(std::span<const double> logprob, std::span<const double> entropy,
                  const LossInputs& in) const override;
  Metrics metrics(const std::map<std::string, double>& sums) const override;

  Aggregation aggregation() const override { return aggregation_; }
  std::string describe() const override;

 private:
  struct PolicyTerm {
    double value;
    double gradient;
    bool clipped;
  };
  PolicyTerm policy_term(double logprob, double old_logprob, double advantage) const;

  double importance_weight(double old_logprob, double sampled_logprob) const;

  double clip_low_, clip_high_, ratio_clamp_, tis_cap_;
  double kl_coef_, entropy_coef_, advantage_eps_;
  KlLimits kl_limits_;
  bool kl_in_reward_;
  KlEstimator kl_estimator_;
  Aggregation aggregation_;
  SingleGroup single_group_;
};

}  // namespace temper
