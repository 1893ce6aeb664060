#include "src/run/plan/memory.h"

#include <algorithm>
#include <limits>

#include "src/run/plan/dry_run.h"

namespace temper {
namespace {

int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

struct Parts {
  std::vector<std::pair<std::string, int64_t>> list;
  void add(const char* name, int64_t bytes) {
    if (bytes > 0) list.emplace_back(name, bytes);
  }
};

constexpr int64_t kProcess = int64_t{40} << 20, kWriter = int64_t{12} << 20,
                  kProcessPerRank = int64_t{1} << 20;

/// Trajectories of a step: ids, mask, log-probs of policy and reference.
int64_t step_bytes(const RunPlan& plan) {
  const int64_t response = plan.max_new_tokens * (4 + 1 + 8 + (plan.needs_reference ? 8 : 0));
  return saturating_multiply(plan.batch.samples_per_step, response + 4 * plan.max_prompt_tokens);
}

/// What a rank holds from start to end.
Parts resident(const RunPlan& plan, const ModelMemory& model, int rank) {
  const auto trainers = static_cast<int64_t>(plan.role(RoleKind::trainer)->ranks.size());
  const auto receivers = static_cast<int64_t>(plan.weight_receivers().size());
  const bool trains = plan.has_role(RoleKind::trainer, rank),
             generates = plan.has_role(RoleKind::rollout, rank);
  Parts parts;
  parts.add("process", process_bytes(plan, rank));
  if (trains || generates) parts.add("weights", model.weights);
  if (trains || generates) parts.add("rope_tables", model.tables);
  if (trains) {
    parts.add("gradients", model.gradients);
    parts.add("optimizer", model.optimizer);
    parts.add("weights_sent", saturating_multiply(model.weights / trainers, receivers));
  } else if (generates) {
    parts.add("weights_received", model.weights / trainers);
  }
  if (plan.has_role(RoleKind::reference, rank))
    parts.add("reference_weights", saturating_add(model.weights, model.tables));
  if (generates || (trains && plan.validates))
    parts.add("kv_cache", saturating_multiply(plan.kv_pages, plan.kv_page_bytes));
  // All trajectories of a step, on trainer ranks of every step that can be under way.
  parts.add("trajectories", saturating_multiply(step_bytes(plan), trains ? plan.max_policy_lag + 1 : 1));
  if (plan.steps_of_longest_response > 1 && (trains || generates))
    parts.add("unfinished", saturating_multiply(step_bytes(plan), plan.steps_of_longest_response - 1));
  return parts;
}

MemoryRow row(const RunPlan& plan, int rank, const char* phase, Parts parts, const PhaseMemory& more) {
  parts.add("activations", more.activations);
  parts.add("workspace", more.workspace);
  MemoryRow row{.rank = rank, .phase = phase, .device_bytes = 0, .host_bytes = 0, .parts = parts.list};
  int64_t total = 0;
  for (const auto& [name, bytes] : row.parts) total = saturating_add(total, bytes);
  (plan.device == Device::cpu ? row.host_bytes : row.device_bytes) = total;
  return row;
}

}  // namespace

int64_t saturating_multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

std::vector<MemoryRow> plan_memory(const RunPlan& plan, const ModelConfig& model, const Config& config) {
  const ModelMemory held = model_memory(plan, model, config);
  const PhaseMemory train = train_memory(plan, model, config);
  PhaseMemory reference, generate;
  if (plan.needs_reference) reference = logprob_memory(plan, model, config);
  if (plan.kv_pages > 0) generate = generate_memory(plan, model, config);
  const int writer = plan.role(RoleKind::trainer)->ranks.front();
  std::vector<MemoryRow> memory;
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    const Parts parts = resident(plan, held, rank);
    const auto add = [&](bool has, const char* phase, const PhaseMemory& more) {
      if (has) memory.push_back(row(plan, rank, phase, parts, more));
    };
    const bool trains = plan.has_role(RoleKind::trainer, rank);
    add(plan.has_role(RoleKind::rollout, rank), "generate", generate);
    add(plan.has_role(RoleKind::reference, rank), "reference", reference);
    add(trains, "train", train);
    add(trains && plan.validates && config.validation.every > 0, "validation", generate);
    add(trains, "save", {0, kSaveWindow});
    add(rank == writer && config.checkpoint.export_hf_every > 0, "export", {0, kExportWindow});
  }
  return memory;
}

int64_t process_bytes(const RunPlan& plan, int rank) {
  const bool writes = rank == plan.role(RoleKind::trainer)->ranks.front();
  return kProcess + (writes ? kWriter : 0) + kProcessPerRank * plan.num_ranks;
}

int64_t peak_bytes(const RunPlan& plan) {
  int64_t peak = 0;
  for (const MemoryRow& row : plan.memory) peak = std::max({peak, row.device_bytes, row.host_bytes});
  return peak;
}

}  // namespace temper
