#include <algorithm>

#include "src/core/check.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/rules.h"

namespace temper {
namespace {

/// Beyond it a micro-batch of any model keeps a GPU busy.
constexpr int64_t kMostTokens = 65536;
constexpr int64_t kTokenStep = 128;

/// Most device memory of the ranks in the phases that `chosen` names, and of it what the cache has.
struct Peak {
  int64_t bytes = 0, cache = 0;
};
template <class Chosen>
Peak peak_of(const RunPlan& plan, const RunModels& models, const Config& config, const Chosen& chosen) {
  Peak peak;
  for (const MemoryRow& row : plan_memory(plan, models, config)) {
    if (!chosen(row.phase) || row.device_bytes <= peak.bytes) continue;
    peak = {row.device_bytes, MemoryRow::bytes_of(row.device, "kv_cache")};
  }
  return peak;
}

bool uses_cache(const std::string& phase) { return phase == "generate" || phase == "validation"; }

/// What lies in host memory where not even the least budget fits without: weights that one phase needs first,
/// which cost least.
RunPlan with_offload(RunPlan plan, const RunModels& models, const Config& config, int64_t limit) {
  const auto fits = [&] {
    return peak_of(plan, models, config, [](const std::string&) { return true; }).bytes <= limit;
  };
  for (RolePlan& role : plan.roles)
    if (role.traits->keys.has(RoleKey::offload) && !role.splits_weights() && !plan.shares_base(role) &&
        !config.roles.of(role.name()).offload && !fits())
      role.in_host = true;
  if (!config.train.offload_optimizer && !fits()) plan.optimizer_in_host = true;
  return plan;
}

/// The largest budget whose phases fit; the least one where none does.
int64_t largest_budget(RunPlan plan, const RunModels& models, const Config& config, int64_t limit) {
  const int64_t least = plan.max_tokens_per_microbatch;
  const auto ranks = static_cast<int64_t>(plan.trainer().replicas());
  const int64_t share =
      saturating_multiply((plan.batch.samples_per_update + ranks - 1) / ranks, plan.lengths.longest);
  int64_t low = 0, high = std::max<int64_t>(0, std::min(kMostTokens, share) - least) / kTokenStep;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    plan.max_tokens_per_microbatch = least + middle * kTokenStep;
    const auto has_budget = [&](const std::string& phase) {
      return !uses_cache(phase) || (plan.validation.loss && phase == "validation");
    };
    const bool fits = peak_of(plan, models, config, has_budget).bytes <= limit;
    (fits ? low : high) = fits ? middle : middle - 1;
  }
  return least + low * kTokenStep;
}

}  // namespace

RunPlan sized_for_gpu(RunPlan plan, const RunModels& models, const Config& config, int64_t device_bytes) {
  plan = with_offload(std::move(plan), models, config, device_bytes);
  if (!config.train.max_tokens_per_microbatch)
    plan.max_tokens_per_microbatch = largest_budget(plan, models, config, device_bytes);
  CachePlan& cache = plan.cache;
  if (cache.pages == 0 || config.rollout.kv_memory_bytes) return plan;
  const int64_t useful = saturating_multiply(cache.running_sequences, cache.pages);
  const Peak peak = peak_of(plan, models, config, uses_cache);
  const int64_t more = std::max<int64_t>(0, device_bytes - peak.bytes) / cache.page_bytes;
  cache.pages = std::clamp(cache.pages + more, cache.pages, std::max(useful, cache.pages));
  return plan;
}

}  // namespace temper
