#pragma once
// The step of generation with the most rows.

#include <vector>

#include "src/rollout/sequence.h"
#include "src/run/plan/plan.h"

namespace temper {

/// Sequences of a step as its scheduler could choose them: decoding ones at full length, and prompts with
/// `prefilled` rows together.
std::vector<Sequence> fullest_step(const RunPlan& plan, int64_t prefilled);
/// Those of them that a step on a GPU has where it is recorded: turns are prefilled beside decoding.
int64_t recorded_prefill(const Config& config);

}  // namespace temper
