#pragma once
// The step of generation with the most rows.

#include <vector>

#include "src/rollout/sequence.h"
#include "src/run/plan/plan.h"

namespace temper {

/// Sequences of a step as its scheduler could choose them: decoding ones at full length, and prompts with
/// `prefilled` rows together.
std::vector<Sequence> fullest_step(const RunPlan& plan, int64_t prefilled);

}  // namespace temper
