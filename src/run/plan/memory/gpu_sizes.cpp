#include <algorithm>

#include "src/core/check.h"
#include "src/run/plan/draft.h"
#include "src/run/plan/memory/memory.h"

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
Peak peak_of(const PlanDraft& d, const RunPlan& plan, const Chosen& chosen) {
  Peak peak;
  for (const MemoryRow& row : plan_memory(plan, d.models, d.config)) {
    if (!chosen(row.phase) || row.device_bytes <= peak.bytes) continue;
    peak = {row.device_bytes, MemoryRow::bytes_of(row.device, "kv_cache")};
  }
  return peak;
}

bool uses_cache(const std::string& phase) { return phase == "generate" || phase == "validation"; }

/// What lies in host memory where not even the least budget fits without: weights that one phase needs first,
/// which cost least.
void choose_offload(const PlanDraft& d, RunPlan& plan, int64_t limit) {
  const auto fits = [&] { return peak_of(d, plan, [](const std::string&) { return true; }).bytes <= limit; };
  for (RolePlan& role : plan.roles)
    if (role.traits->keys.has(RoleKey::offload) && !role.splits_weights() && !plan.shares_base(role) &&
        !d.config.roles.of(role.name()).offload && !fits())
      role.in_host = true;
  if (!d.config.train.offload_optimizer && !fits()) plan.optimizer_in_host = true;
}

/// The largest budget whose phases fit; the least one where none does.
int64_t largest_budget(const PlanDraft& d, int64_t limit) {
  RunPlan plan = d.result.plan;
  const int64_t least = plan.max_tokens_per_microbatch;
  const auto ranks = static_cast<int64_t>(plan.trainer().replicas());
  const int64_t share =
      saturating_multiply((plan.batch.samples_per_update + ranks - 1) / ranks, plan.longest_sequence);
  int64_t low = 0, high = std::max<int64_t>(0, std::min(kMostTokens, share) - least) / kTokenStep;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    plan.max_tokens_per_microbatch = least + middle * kTokenStep;
    const auto has_budget = [&](const std::string& phase) {
      return !uses_cache(phase) || (plan.validates_loss && phase == "validation");
    };
    const bool fits = peak_of(d, plan, has_budget).bytes <= limit;
    (fits ? low : high) = fits ? middle : middle - 1;
  }
  return least + low * kTokenStep;
}

}  // namespace

void plan_gpu_sizes(PlanDraft& d, int64_t device_bytes) {
  RunPlan& plan = d.result.plan;
  choose_offload(d, plan, device_bytes);
  if (!d.config.train.max_tokens_per_microbatch)
    plan.max_tokens_per_microbatch = largest_budget(d, device_bytes);
  if (plan.kv_pages == 0 || d.config.rollout.kv_memory_bytes) return;
  const int64_t useful = saturating_multiply(plan.running_sequences, plan.kv_pages);
  const Peak peak = peak_of(d, plan, uses_cache);
  const int64_t more = std::max<int64_t>(0, device_bytes - peak.bytes) / plan.kv_page_bytes;
  plan.kv_pages = std::clamp(plan.kv_pages + more, plan.kv_pages, std::max(useful, plan.kv_pages));
}

}  // namespace temper
