#pragma once
// Bytes per rank and phase. Weights, gradients, optimizer state and cache are exact; activations and
// trajectories are upper bounds from the same tensors that the layers save and the exchange holds.

#include "src/run/plan/plan.h"

namespace temper {

/// One row per rank of the roles and phase of a step, for a plan whose other fields are filled.
std::vector<MemoryRow> plan_memory(const RunPlan& plan, const ModelFacts& facts,
                                   const RolloutConfig& rollout);

/// The largest row.
int64_t peak_bytes(const RunPlan& plan);

/// 2^63 - 1 where the product is larger.
int64_t saturating_multiply(int64_t a, int64_t b);

}  // namespace temper
