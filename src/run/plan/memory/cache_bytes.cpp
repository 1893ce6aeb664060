#include "src/run/plan/memory/cache_bytes.h"

#include <algorithm>
#include <limits>

#include "src/rollout/kv_cache.h"
#include "src/run/plan/memory/memory.h"

namespace temper {

std::vector<CacheBytes> cache_bytes(const ModelConfig& model, const RolePlan& role, DType dtype,
                                    int64_t page_tokens) {
  std::vector<CacheBytes> stages;
  for (const LayerRanges& parts : role.stages) {
    const int64_t of_token = KvShape(model, parts, role.tp(), dtype).page_bytes(1);
    const StateShape states(model, parts, role.tp(), dtype);
    stages.push_back({.page = saturating_multiply(of_token, page_tokens),
                      .state = states.sequence_bytes(),
                      .spare = states.tail_bytes()});
  }
  return stages;
}

void add_cache(MemoryParts& parts, const RunPlan& plan, const CacheBytes& stage, const std::string& name) {
  const int64_t pages = saturating_multiply(plan.cache.pages, stage.page),
                spare = plan.device == Device::cuda ? stage.spare : 0,
                states = std::min(saturating_multiply(plan.cache.running_sequences, stage.state),
                                  std::numeric_limits<int64_t>::max() - spare) +
                         spare;
  if (pages > 0) parts.emplace_back(name + "_cache", pages);
  if (states > 0) parts.emplace_back(name + "_states", states);
}

}  // namespace temper
