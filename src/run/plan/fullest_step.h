#pragma once
// The step of generation with the most rows.

#include <vector>

#include "src/rollout/sequence.h"
#include "src/run/plan/plan.h"

namespace temper {

/// Sequences of a step as its scheduler could choose them: decoding ones at full length, and prompts with
/// `prefilled` rows together.
std::vector<Sequence> fullest_step(const RunPlan& plan, int64_t prefilled);
/// As many as the rows that a step on a GPU has, where it is recorded, beyond one of each running sequence:
/// turns are prefilled beside decoding.
int64_t recorded_prefill(const RunPlan& plan, const Config& config);

}  // namespace temper
