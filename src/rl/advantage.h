#pragma once
// Advantages of GRPO and the KL penalty inside the reward. Groups are complete here: statistics over a part
// of a group would be wrong. All arithmetic is double, sums go left to right in order of `sample`:
//   mean = sum R / n,  std = sqrt(sum (R - mean)^2 / (n - 1)),  A_i = (R_i - mean) / (std + eps)
// A is exactly 0 when all rewards of the group are equal. Responses without counted tokens keep their reward
// in the statistics. Excluded ones have no reward: n and the sums leave them out, A = 0 and their mask
// becomes all zeros, so that KL and entropy terms do not train on them either; a group with one reward left
// is a group of one. tools/golden/check_advantages.py repeats these formulas and compares bit for bit.

#include <span>

#include "src/rl/kl.h"
#include "src/rl/types.h"

namespace temper {

/// What happens to the response of a group of one, which has no siblings to compare with.
enum class SingleGroup {  // order of kSingleGroupRules
  drop,                   // A = 0 and no token is counted: Response::mask becomes all zeros
  zero,                   // A = 0, its tokens stay counted
  verl,                   // mean 0 and std 1: A = R / (1 + eps)
};

/// Fills Trajectory::advantage from Trajectory::reward; non-finite results are Error(Exit::numerics).
void grpo_advantages(std::span<Group> groups, double eps, SingleGroup single_group);

/// reward -= coefficient * sum over counted tokens of k_t(logprobs, ref_logprobs); raw_reward stays.
void subtract_kl_from_rewards(std::span<Group> groups, KlEstimator estimator, double coefficient,
                              const KlLimits& limits);

}  // namespace temper
