#include "src/run/plan/memory.h"

#include <algorithm>
#include <limits>

namespace temper {
namespace {

int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

/// Bytes of one token in one layer while its activations are kept: normed inputs, sums and outputs (6 D), q,
/// k, v (twice with head norms), attention output, gate, up and their product (3 F), and the log-sum-exp per
/// head.
int64_t layer_token_bytes(const ModelFacts& f, DType dtype) {
  const int64_t qkv = f.q_width + 2 * f.kv_width;
  const int64_t values = 6 * f.hidden_size + qkv * (f.qk_norm ? 2 : 1) + f.q_width + 3 * f.intermediate_size;
  return values * dtype_size(dtype) + (2 * f.num_heads + 2) * dtype_size(accumulate_dtype(dtype));
}

struct Parts {
  std::vector<std::pair<std::string, int64_t>> list;
  void add(const char* name, int64_t bytes) {
    if (bytes > 0) list.emplace_back(name, bytes);
  }
};

/// What a rank holds from start to end.
Parts resident(const RunPlan& plan, const ModelFacts& f, int rank) {
  const int64_t value = dtype_size(plan.dtype), accumulate = dtype_size(accumulate_dtype(plan.dtype));
  const auto trainers = static_cast<int64_t>(plan.role(RoleKind::trainer)->ranks.size());
  const auto receivers = static_cast<int64_t>(plan.weight_receivers().size());
  const int64_t shard = std::min(f.num_parameters, (f.num_parameters / trainers / 16 + 1) * 16);
  const int64_t states = plan.dtype == DType::bf16 ? 3 : 2;  // both moments, and master weights under bf16
  const int64_t weights = saturating_multiply(f.num_parameters, value);
  const bool trains = plan.has_role(RoleKind::trainer, rank),
             generates = plan.has_role(RoleKind::rollout, rank);
  Parts parts;
  if (trains || generates) parts.add("weights", weights);
  if (trains) {
    parts.add("gradients", saturating_multiply(f.num_parameters, accumulate));
    parts.add("optimizer", saturating_multiply(shard, states * accumulate));
    parts.add("weights_sent", saturating_multiply(weights / trainers, receivers));
  } else if (generates) {
    parts.add("weights_received", weights / trainers);
  }
  if (plan.has_role(RoleKind::reference, rank)) parts.add("reference_weights", weights);
  if (generates || (trains && plan.validates))
    parts.add("kv_cache", saturating_multiply(plan.kv_pages, plan.kv_page_bytes));
  // Ids, mask, log-probs of policy and reference: all trajectories of a step, on trainer ranks of every step
  // that can be under way.
  const int64_t response = plan.max_new_tokens * (4 + 1 + 8 + (plan.needs_reference ? 8 : 0));
  const int64_t step =
      saturating_multiply(plan.batch.samples_per_step, response + 4 * plan.max_prompt_tokens);
  parts.add("trajectories", saturating_multiply(step, trains ? plan.max_policy_lag + 1 : 1));
  if (plan.steps_of_longest_response > 1 && (trains || generates))
    parts.add("unfinished", saturating_multiply(step, plan.steps_of_longest_response - 1));
  return parts;
}

MemoryRow row(const RunPlan& plan, int rank, const char* phase, Parts parts, int64_t activations) {
  parts.add("activations", activations);
  MemoryRow row{.rank = rank, .phase = phase, .device_bytes = 0, .host_bytes = 0, .parts = parts.list};
  int64_t total = 0;
  for (const auto& [name, bytes] : row.parts) total = saturating_add(total, bytes);
  (plan.device == "cpu" ? row.host_bytes : row.device_bytes) = total;
  return row;
}

}  // namespace

int64_t saturating_multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

std::vector<MemoryRow> plan_memory(const RunPlan& plan, const ModelFacts& f, const RolloutConfig& rollout) {
  const int64_t layer = layer_token_bytes(f, plan.dtype);
  const int64_t all_layers =
      saturating_multiply(layer, f.num_layers + 2);  // backward of one layer takes two more
  const int64_t rows = rollout.max_running_sequences + rollout.prefill_chunk_tokens;
  const int64_t budget = plan.max_tokens_per_microbatch;
  std::vector<MemoryRow> memory;
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    const Parts parts = resident(plan, f, rank);
    const auto add = [&](RoleKind role, const char* phase, int64_t activations) {
      if (plan.has_role(role, rank)) memory.push_back(row(plan, rank, phase, parts, activations));
    };
    add(RoleKind::rollout, "generate", saturating_multiply(layer, rows));
    add(RoleKind::reference, "reference", saturating_multiply(layer, budget));
    add(RoleKind::trainer, "train", saturating_multiply(all_layers, budget));
  }
  return memory;
}

int64_t peak_bytes(const RunPlan& plan) {
  int64_t peak = 0;
  for (const MemoryRow& row : plan.memory) peak = std::max({peak, row.device_bytes, row.host_bytes});
  return peak;
}

}  // namespace temper
