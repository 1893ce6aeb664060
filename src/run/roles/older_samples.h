#pragma once
// Tokens that older weights sampled than those that a step trains: where their ratios start, and which
// responses are rejected for them.

#include <functional>
#include <span>
#include <vector>

#include "src/run/roles/role.h"

namespace temper {

/// Log-probs of all response tokens by the weights as they are, of all trainer ranks together.
using ScoreSamples = std::function<std::vector<std::vector<double>>(std::span<const Trajectory* const>)>;

/// The ratio of such a token starts at the weights before the first update of the step. With one update those
/// are the update's own; else, and where responses may be rejected, a pass over the sequences says their
/// log-probs. All trainer ranks call it.
void add_old_logprobs(const RoleParts& parts, std::vector<Group>& groups, int64_t step, bool one_update,
                      const ScoreSamples& score);

}  // namespace temper
