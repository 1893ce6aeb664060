#include "src/rl/advantage.h"

#include <algorithm>
#include <cmath>

#include "src/core/check.h"

namespace temper {
namespace {

void train_nothing(Trajectory& t) {
  t.advantage = 0;
  std::fill(t.response.mask.begin(), t.response.mask.end(), uint8_t{0});
}

void single_advantage(Trajectory& only, double eps, SingleGroup rule) {
  only.advantage = rule == SingleGroup::verl ? only.reward / (1 + eps) : 0;
  if (rule == SingleGroup::drop) train_nothing(only);
}

void group_advantages(const std::vector<Trajectory*>& samples, double eps) {
  auto by_reward = [](const Trajectory* a, const Trajectory* b) { return a->reward < b->reward; };
  auto [low, high] = std::minmax_element(samples.begin(), samples.end(), by_reward);
  // Rounding of the mean must not become a signal of size 1e-16 / eps.
  if ((*low)->reward == (*high)->reward) {
    for (Trajectory* t : samples) t->advantage = 0;
    return;
  }
  const double n = static_cast<double>(samples.size());
  double sum = 0;
  for (const Trajectory* t : samples) sum += t->reward;
  const double mean = sum / n;
  double squares = 0;
  for (const Trajectory* t : samples) squares += (t->reward - mean) * (t->reward - mean);
  const double scale = std::sqrt(squares / (n - 1)) + eps;
  for (Trajectory* t : samples) t->advantage = (t->reward - mean) / scale;
}

void check_finite(const Trajectory& t, double value, const char* name) {
  if (std::isfinite(value)) return;
  fail(Exit::numerics,
       {.what = fmt::format("the {} of a response is not finite", name),
        .where = fmt::format("group {}, sample {}", t.group, t.sample),
        .why = fmt::format("reward {}, raw reward {}, {} {}", t.reward, t.raw_reward, name, value),
        .fix = "bound the rewards (reward.functions, weights) or lower algorithm.kl_coef"});
}

}  // namespace

void grpo_advantages(std::span<Group> groups, double eps, SingleGroup single_group) {
  for (Group& group : groups) {
    for (const Trajectory& t : group.samples) check_finite(t, t.reward, "reward");
    std::vector<Trajectory*> rewarded;
    for (Trajectory& t : group.samples) t.excluded ? train_nothing(t) : rewarded.push_back(&t);
    if (rewarded.size() == 1)
      single_advantage(*rewarded.front(), eps, single_group);
    else if (!rewarded.empty())
      group_advantages(rewarded, eps);
    for (const Trajectory& t : group.samples) check_finite(t, t.advantage, "advantage");
  }
}

void subtract_kl_from_rewards(std::span<Group> groups, KlEstimator estimator, double coefficient,
                              const KlLimits& limits) {
  for (Group& group : groups) {
    for (Trajectory& t : group.samples) {
      if (t.excluded) continue;
      const size_t n = t.response.tokens.size();
      CHECK(
          t.response.mask.size() == n && t.response.logprobs.size() == n && t.ref_logprobs.size() == n,
          "KL in the reward of group {}, sample {}: {} tokens, {} mask, {} log-probs, {} reference log-probs",
          t.group, t.sample, n, t.response.mask.size(), t.response.logprobs.size(), t.ref_logprobs.size());
      double kl = 0;
      for (size_t i = 0; i < n; ++i) {
        if (t.response.mask[i])
          kl += kl_term(estimator, t.response.logprobs[i], t.ref_logprobs[i], limits).value;
      }
      t.reward -= coefficient * kl;
      check_finite(t, t.reward, "reward");
    }
  }
}

}  // namespace temper
