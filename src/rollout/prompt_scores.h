#pragma once
// The log-probs of the tokens of a prompt itself, for requests that want them: what the model thinks of each
// token but the first, and the token that it thinks most of.

#include <span>

#include "src/nn/logprob_head.h"
#include "src/rollout/scheduler.h"

namespace temper {

/// Fills Sequence::scores of the prompts in a step that want them. hidden: [T, D], the rows of the batch,
/// which are not committed yet. The log-probs are those of the distribution at temperature 1, the bits of
/// `temper score`.
void score_prompts(Ctx& c, std::span<const ScheduledRows> step, const LogprobHead& head, const Tensor& hidden,
                   int64_t num_sampleable);

}  // namespace temper
