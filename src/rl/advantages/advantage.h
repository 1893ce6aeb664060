#pragma once
// Advantages: a function over the groups of a step, which fills Trajectory::advantage, and advantages where
// they differ by token, from Trajectory::reward. Formulas: config/methods.h. Groups and steps are complete
// here: statistics over a part would be wrong. All arithmetic is double, sums go left to right in order of
// group, sample and token; std is that of a sample, sqrt(sum (R - mean)^2 / (n - 1)).
// A is exactly 0 when all rewards of the group are equal. Responses without counted tokens keep their reward
// in the statistics. Excluded ones have no reward: n and the sums leave them out, A = 0 and their mask
// becomes all zeros, so that KL and entropy terms do not train on them either; a group with one reward left
// is a group of one. tools/golden/check_advantages.py repeats the formula of GRPO and compares bit for bit.

#include <span>
#include <string>
#include <vector>

#include "src/config/methods.h"
#include "src/rl/kl.h"
#include "src/rl/types.h"

namespace temper {

/// What happens to the response of a group of one, which has no siblings to compare with.
enum class SingleGroup {  // order of kSingleGroupRules
  drop,                   // A = 0 and no token is counted: Response::mask becomes all zeros
  zero,                   // A = 0, its tokens stay counted
  verl,                   // mean 0 and std 1: A = R / (1 + eps), of R - mean_g: A = R
};

/// What advantages are divided by: the std of the group + eps, that of all rewards of the step + eps, 1.
enum class AdvantageScale { group, batch, none };  // order of kAdvantageScales

struct AdvantageOptions {
  double eps = 1e-6, gamma = 1;
  SingleGroup single_group = SingleGroup::drop;
  AdvantageScale scale = AdvantageScale::group;
  /// The KL that is in the rewards; 0: none is.
  double kl_coef = 0;
  KlEstimator kl_estimator = KlEstimator::k3;
  KlLimits kl_limits = {};
  /// Names and weights of the parts of the reward that are functions of the config.
  std::vector<std::pair<std::string, double>> parts = {};
};

/// The responses of a group that have a reward, at least one, in order of sample.
using Rewarded = std::vector<Trajectory*>;

using AdvantageFunction = void (*)(std::span<const Rewarded> groups, const AdvantageOptions& options);

void grpo_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options);
void rloo_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options);
void reinforce_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options);
void reinforce_baseline_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options);
void opo_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options);
void gpg_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options);
void pass_at_k_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options);
void gdpo_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options);

struct AdvantageRow {
  std::string_view name;
  AdvantageFunction fill;
};
inline constexpr std::array kAdvantageFunctions{
    AdvantageRow{"grpo", grpo_advantage},
    AdvantageRow{"rloo", rloo_advantage},
    AdvantageRow{"reinforce++", reinforce_advantage},
    AdvantageRow{"reinforce++-baseline", reinforce_baseline_advantage},
    AdvantageRow{"opo", opo_advantage},
    AdvantageRow{"gpg", gpg_advantage},
    AdvantageRow{"pass@k", pass_at_k_advantage},
    AdvantageRow{"gdpo", gdpo_advantage}};
static_assert(methods::same_names(kAdvantageFunctions, kAdvantages),
              "a row here for each advantage of config/methods.h");

/// All advantages of a step by the row of this name; non-finite rewards and results are
/// Error(Exit::numerics).
void fill_advantages(const AdvantageTraits& row, std::span<Group> groups, const AdvantageOptions& options);

/// Every counted token of a response that a teacher scored loses coefficient * (log-prob when sampled -
/// log-prob of the teacher).
void subtract_teacher(std::span<Group> groups, double coefficient);

/// reward -= coefficient * sum over counted tokens of k_t(logprobs, ref_logprobs); raw_reward stays.
void subtract_kl_from_rewards(std::span<Group> groups, KlEstimator estimator, double coefficient,
                              const KlLimits& limits);

/// Responses that were cut train nothing.
void mask_truncated(std::span<Group> groups);

}  // namespace temper
