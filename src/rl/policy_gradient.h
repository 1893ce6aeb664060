#pragma once
// Reinforcement learning from groups of samples: an advantage (advantages/), a policy loss (losses/), and
// what goes beside them.
//   l_t = w_t pg_t + kl_coef k(lp, lf) - entropy_coef H_t;   a_t = w_t d pg_t / d lp + kl_coef d k / d lp
// pg: the policy loss at old log-probs lo and advantage A. w: the weight of a token that other weights
// sampled (importance.h). With kl_in = "reward" the KL goes into the reward and the loss has no KL term.
// ratio_clamp bounds the exponent of k3, too. Tokens of weight 0 are selected away, never multiplied.

#include "src/config/algorithm_config.h"
#include "src/config/reward_config.h"
#include "src/rl/advantages/advantage.h"
#include "src/rl/algorithm.h"
#include "src/rl/importance.h"
#include "src/rl/losses/policy_loss.h"

namespace temper {

class PolicyGradient final : public Algorithm {
 public:
  /// Error(Exit::usage) names the key of an illegal value.
  explicit PolicyGradient(const AlgorithmConfig& config, const RewardConfig& rewards = {});

  void shape_rewards(std::span<Group> groups) const override;
  void advantages(std::span<Group> groups) const override;
  LossResult loss(std::span<const double> logprob, std::span<const double> entropy,
                  const LossInputs& in) const override;
  Metrics metrics(const std::map<std::string, double>& sums) const override;

  Aggregation aggregation() const override { return aggregation_; }
  std::string describe() const override;

 private:
  std::string name_;
  const LossTraits& loss_traits_;
  PolicyLoss policy_loss_;
  LossOptions loss_options_;
  const AdvantageTraits& advantage_traits_;
  AdvantageOptions advantage_options_;
  ImportanceRule importance_;
  double kl_coef_, entropy_coef_, teacher_coef_;
  KlLimits kl_limits_;
  bool kl_in_reward_, mask_truncated_;
  KlEstimator kl_estimator_;
  Aggregation aggregation_;
};

}  // namespace temper
