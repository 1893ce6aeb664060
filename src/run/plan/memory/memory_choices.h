#pragma once
// The memory that the same run takes on a GPU with every level of recomputation, and with the optimizer's
// state on the GPU or in host memory.

#include "src/run/plan/plan.h"

namespace temper {

/// Each choice is reckoned with the plan's token budget and cache. Empty for a plan on the CPU.
std::vector<MemoryChoice> memory_choices(const RunPlan& plan, const RunModels& models, const Config& config);

/// Seconds of a step that what lies in host memory costs: the optimizer's state, which every update reads and
/// writes, and the weights of the reference, which come once a step.
double offload_seconds(const RunPlan& plan);

}  // namespace temper
