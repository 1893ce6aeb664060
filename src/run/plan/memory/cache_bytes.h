#pragma once
// What a rank that generates keeps of sequences: pages of its layers with attention, states of its gated
// delta nets.

#include "src/run/plan/plan.h"

namespace temper {

/// A page, the states of one sequence, and what padding rows of a GPU write to.
struct CacheBytes {
  int64_t page = 0, state = 0, spare = 0;
};
/// On each stage of a role.
std::vector<CacheBytes> cache_bytes(const ModelConfig& model, const RolePlan& role, DType dtype,
                                    int64_t page_tokens);

/// The pages and states of a plan on a stage as "<name>_cache" and "<name>_states", where there are some.
void add_cache(MemoryParts& parts, const RunPlan& plan, const CacheBytes& stage, const std::string& name);

}  // namespace temper
