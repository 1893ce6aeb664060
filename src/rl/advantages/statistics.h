#pragma once
// What the rows of advantages are made of.

#include <cstddef>
#include <span>

#include "src/rl/advantages/advantage.h"

namespace temper {

double mean_reward(const Rewarded& group);
/// The group has at least two responses.
double std_reward(const Rewarded& group);
bool all_equal(const Rewarded& group);

/// R - mean_g of each response, exactly 0 where all are equal; of a group of one 0, or R by the rule "verl".
void fill_centred(const Rewarded& group, const AdvantageOptions& options);

/// What the advantages of each group are divided by, in order; 1 of a group of one that has no std.
std::vector<double> divisors(std::span<const Rewarded> groups, const AdvantageOptions& options);

/// A becomes (A - mean) / sqrt(var + 1e-8), mean and unbiased variance over the counted tokens of all groups;
/// 0 where not counted, and where all of them are equal.
void whiten_tokens(std::span<const Rewarded> groups);

/// The log-probs of policy and reference cover the response.
void check_kl_inputs(const Trajectory& t);

}  // namespace temper
