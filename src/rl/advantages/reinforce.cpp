// REINFORCE++ and its variant with a baseline.

#include "src/rl/advantages/statistics.h"

namespace temper {
namespace {

/// G_t = r_t + gamma G_{t+1} over the counted tokens, where r is -kl_coef k_t, on the last one the reward
/// besides.
void fill_returns(Trajectory& t, const AdvantageOptions& options) {
  const size_t n = t.response.mask.size();
  std::vector<double> kl(n);
  double reward = t.reward;  // the KL of all tokens is in it
  if (options.kl_coef != 0) {
    check_kl_inputs(t);
    for (size_t i = 0; i < n; ++i) {
      if (!t.response.mask[i]) continue;
      kl[i] =
          options.kl_coef *
          kl_term(options.kl_estimator, t.response.logprobs[i], t.ref_logprobs[i], options.kl_limits).value;
      reward += kl[i];
    }
  }
  t.advantages.assign(n, 0);
  double later = 0;
  bool last = true;
  for (size_t i = n; i-- > 0;) {
    if (!t.response.mask[i]) continue;
    later = last ? reward - kl[i] : options.gamma * later - kl[i];
    last = false;
    t.advantages[i] = later;
  }
}

}  // namespace

void reinforce_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options) {
  const bool by_token = options.kl_coef != 0 || options.gamma != 1;
  for (const Rewarded& group : groups)
    for (Trajectory* t : group) {
      t->advantage = t->reward;
      if (by_token) fill_returns(*t, options);
    }
  whiten_tokens(groups);
}

void reinforce_baseline_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options) {
  for (const Rewarded& group : groups) fill_centred(group, options);
  whiten_tokens(groups);
}

}  // namespace temper
