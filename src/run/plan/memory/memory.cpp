#include "src/run/plan/memory/memory.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>

#include "src/comm/gpu/neighbours.h"
#include "src/core/check.h"
#include "src/run/plan/dry_run.h"
#include "src/run/plan/layout/layer_samples.h"
#include "src/train/schedule.h"

namespace temper {
namespace {

int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

void add(MemoryParts& parts, std::string name, int64_t bytes) {
  if (bytes > 0) parts.emplace_back(std::move(name), bytes);
}

/// What the roles of a run have of their models, in the order of the plan's roles.
using HeldModels = std::vector<ModelMemory>;

/// What a process with a GPU holds: the driver, cuBLASLt, pinned windows.
constexpr int64_t kDriver = int64_t{880} << 20;
constexpr int64_t kProcess = int64_t{38} << 20, kWriter = int64_t{4} << 20,
                  kProcessPerRank = int64_t{1} << 20;
/// What the tokenizer holds for each id: its token in both directions, its merge, and what reading the file
/// leaves in the heap. Measured with Qwen3's.
constexpr int64_t kTokenBytes = 160;

/// The phase in which trainer ranks generate, or score held-out responses.
constexpr const char* kValidation = "validation";

/// Trajectories of a step: ids, mask, log-probs of the policy, of each role that scores, advantages, routes.
int64_t step_bytes(const RunPlan& plan) {
  const int64_t prompt = plan.lengths.max_prompt, response = plan.lengths.max_new;
  const int64_t values = response * (13 + 8 * (plan.num_scorers() + plan.advantages_by_token));
  const int64_t routes = (prompt + response) * plan.routes.row_bytes();
  return saturating_multiply(plan.batch.samples_per_step, values + 4 * prompt + routes);
}

/// `measure` of each stage of a role; stages alike are measured once.
template <class Measure>
auto of_stages(const RolePlan& role, const ModelConfig& model, const Measure& measure) {
  using Measured = decltype(measure(RoleStage{role, 0}));
  std::map<std::vector<int64_t>, Measured> known;
  std::vector<Measured> stages;
  for (int stage = 0; stage < role.pp(); ++stage) {
    const auto [at, is_new] = known.try_emplace(stage_kind(role, model, stage));
    if (is_new) at->second = measure(RoleStage{role, stage});
    stages.push_back(at->second);
  }
  return stages;
}

/// What an update holds, reckoned from one full micro-batch with so many sequences: those in flight, by
/// parts, the last one not full where the update has no more sequences, and what is made for other ranks
/// until it is sent.
PhaseMemory in_flight(const RunPlan& plan, const RolePlan& trainer, const ModelConfig& model, int stage,
                      const MicrobatchMemory& of) {
  const PipelineShape shape{trainer.pp(), trainer.vpp()};
  const int64_t update = (plan.batch.samples_per_update - 1) / trainer.dp() + 1;
  // More than a few do not change how many there are at once.
  const int64_t all = std::clamp<int64_t>((update - 1) / of.sequences + 1, 1, 4 * trainer.pp());
  const int64_t kept = std::min(saturating_multiply(of.sequences, most_kept(shape, stage, all)),
                                saturating_multiply(update, trainer.vpp()));
  const int64_t borders = schedule(shape, stage, all, training_steps).borders;
  const int64_t rows = plan.microbatch_tokens() / trainer.cp() / trainer.tp() + 1;
  const int64_t more = saturating_multiply(std::max<int64_t>(0, borders - 1),
                                           rows * model.hidden_size * dtype_size(plan.dtype));
  return {saturating_multiply(of.memory.activations / of.sequences / trainer.vpp(), kept),
          saturating_add(of.memory.workspace, more)};
}

/// An update whose micro-batches are as full as they can be, on each stage of a role that trains.
std::vector<PhaseMemory> train_memory(const RunPlan& plan, const RolePlan& role, const ModelConfig& model,
                                      const Config& config) {
  const auto kinds =
      of_stages(role, model, [&](const RoleStage& of) { return microbatch_memory(plan, model, config, of); });
  std::vector<PhaseMemory> stages;
  for (int stage = 0; stage < role.pp(); ++stage) {
    PhaseMemory& most = stages.emplace_back();
    for (const MicrobatchMemory& one : kinds[static_cast<size_t>(stage)]) {
      const PhaseMemory all = in_flight(plan, role, model, stage, one);
      most = {std::max(most.activations, all.activations), std::max(most.workspace, all.workspace)};
    }
  }
  return stages;
}

/// What a role's phase takes, on each of its stages.
std::vector<PhaseMemory> work_memory(const RunPlan& plan, const RolePlan& role, const ModelConfig& model,
                                     const Config& config) {
  if (role.traits->trains()) return train_memory(plan, role, model, config);
  const auto measure = role.traits->scores() ? logprob_memory : generate_memory;
  return of_stages(role, model, [&](const RoleStage& of) { return measure(plan, model, config, of, {}); });
}

/// What a rank that has the role has of its model.
const TrainedMemory& held_by(const RunPlan& plan, const HeldModels& held, const RolePlan& role, int rank) {
  return held[static_cast<size_t>(&role - plan.roles.data())]
      .stages[static_cast<size_t>(role.stage_of(rank))];
}
int64_t tables_of(const RunPlan& plan, const HeldModels& held, const RolePlan& role) {
  return held[static_cast<size_t>(&role - plan.roles.data())].tables;
}
/// Whole weights of those that do not train: what a stage has, or its shards and windows.
int64_t kept_weights(const TrainedMemory& m) { return m.weights + m.weight_shards + m.weight_windows; }

/// Names of parts begin with the role's, but for the policy's own.
std::string part_name(const RolePlan& role, const char* what) {
  return role.traits->of_policy ? what : fmt::format("{}_{}", role.name(), what);
}

/// The validation has a cache beside that of the rollout.
bool has_two_caches(const RunPlan& plan, int rank) {
  return plan.generates_on(rank) && plan.trains(rank) && plan.validation.generates &&
         !plan.shares_buffers(rank);
}

/// Versions that WeightSync keeps: with a lag, where ranks only generate.
int64_t versions_kept(const RunPlan& plan) {
  const RolePlan* rollout = plan.generator();
  const auto trains = [&](int rank) { return plan.trains(rank); };
  if (!rollout || plan.max_policy_lag == 0 ||
      std::any_of(rollout->ranks.begin(), rollout->ranks.end(), trains))
    return 0;
  return std::min<int64_t>(plan.max_policy_lag, 2) + 1;
}

/// Host memory of a rank, beside what a CPU computes with.
MemoryParts host_parts(const RunPlan& plan, const HeldModels& held, int rank) {
  const bool trains = plan.trains(rank), generates = plan.generates_on(rank);
  MemoryParts parts;
  add(parts, "process", process_bytes(plan, rank));
  const auto at = static_cast<size_t>(rank);
  // Both keep the memory of messages; with versions that are kept the last one is what goes out.
  const int64_t kept = saturating_multiply(plan.weights.first_model, versions_kept(plan));
  if (trains) add(parts, "weights_sent", std::max(plan.weights.messages[at], kept));
  add(parts, "weights_received", plan.weights.in_message[at]);
  // All trajectories of a step, on trainer ranks of every step that can be under way.
  add(parts, "trajectories", saturating_multiply(step_bytes(plan), trains ? plan.max_policy_lag + 1 : 1));
  for (const RolePlan& role : plan.roles) {
    if (!role.has(rank)) continue;
    const TrainedMemory& m = held_by(plan, held, role, rank);
    if (plan.optimizer_in_host) add(parts, part_name(role, "optimizer"), m.optimizer);
    if (role.in_host) add(parts, part_name(role, "weights"), m.weights);
  }
  if (plan.lengths.steps_of_longest_response > 1 && (trains || generates))
    add(parts, "unfinished",
        saturating_multiply(step_bytes(plan), plan.lengths.steps_of_longest_response - 1));
  return parts;
}

/// What a group of so many ranks takes, neighbours in blocks of `block` ranks; with `peers` of them a rank
/// exchanges.
ExchangeMemory group_memory(int ranks, int block, int peers) {
  if (ranks == 1) return {};
  const bool near = block <= kLinkedGpus;
  const int on_host = near ? ranks : std::max(1, ranks * kLinkedGpus / block);
  const int64_t inboxes = (on_host - 1) * Inbox::kRankBytes;
  if (near) return {inboxes, 0};
  return {kJoined + inboxes, peers * kFarPeer};
}

ExchangeMemory mesh_memory(const RolePlan& role) {
  const bool sums = role.traits->trains() || role.keeps_shards();  // gradients, or shards of weights
  ExchangeMemory memory;
  for (const AxisSet axes : kTensorGroups) {
    if (axes.of_experts() && !role.grid.cuts_experts_apart()) continue;  // they are others'
    const int ranks = role.grid.size(axes);
    // A stage exchanges with those before and after it, replicas only where they sum.
    const int peers = axes == Axis::pp                                   ? std::min(2, ranks - 1)
                      : (axes != kReplicas && axes != Axis::edp) || sums ? ranks - 1
                                                                         : 0;
    const ExchangeMemory group = group_memory(ranks, role.grid.span(axes), peers);
    memory.joined += group.joined;
    memory.connections += group.connections;
  }
  return memory;
}

/// The policy: what is trained, and what generates beside it, shared in another way.
void add_policy(MemoryParts& parts, const RunPlan& plan, const HeldModels& held, int rank) {
  const bool trains = plan.trains(rank), generates = plan.generates_on(rank);
  if (!trains && !generates) return;
  const RolePlan& first = trains ? plan.trainer() : *plan.generator();
  const TrainedMemory& m = held_by(plan, held, first, rank);
  const int64_t tables = tables_of(plan, held, first);
  if (trains && first.splits_weights())
    add(parts, "weight_shards", m.weight_shards);
  else
    add(parts, "weights", m.weights);
  add(parts, "rope_tables", tables);
  if (trains && generates && !plan.shares_buffers(rank))
    add(parts, fmt::format("{}_weights", plan.generator()->name()),
        saturating_add(held_by(plan, held, *plan.generator(), rank).weights, tables));
}

/// Memory of the device from start to end.
MemoryParts device_parts(const RunPlan& plan, const HeldModels& held, int rank) {
  MemoryParts parts;
  if (plan.device == Device::cuda) {
    add(parts, "context", kGpuContext);
    add(parts, "product_trials", kProductTrials);
    const ExchangeMemory exchanges = exchange_memory(plan, rank);
    add(parts, "exchanges", exchanges.joined + exchanges.connections);
  }
  add_policy(parts, plan, held, rank);
  for (const RolePlan& role : plan.roles) {
    if (!role.has(rank)) continue;
    const TrainedMemory& m = held_by(plan, held, role, rank);
    if (!plan.optimizer_in_host) add(parts, part_name(role, "optimizer"), m.optimizer);
    if (role.traits->of_policy) continue;
    const bool of_base = plan.shares_base(role, rank);
    if (of_base) add(parts, part_name(role, "adapters"), m.adapters);
    if (of_base) continue;
    const int64_t weights = role.in_host ? 0 : role.traits->trains() ? m.weights : kept_weights(m);
    add(parts, part_name(role, "weights"), saturating_add(weights, tables_of(plan, held, role)));
  }
  return parts;
}

/// What phases lend to each other on a GPU, and a CPU holds from start to end.
MemoryParts lent_parts(const RunPlan& plan, const HeldModels& held, int rank, std::string_view phase) {
  const bool all = plan.device == Device::cpu;
  MemoryParts parts;
  for (const RolePlan& role : plan.roles) {
    if (!role.has(rank)) continue;
    const TrainedMemory& m = held_by(plan, held, role, rank);
    const bool works = phase == role.traits->phase, split = role.traits->trains() && role.splits_weights();
    if (split && (all || !works)) add(parts, part_name(role, "weights"), m.weights);
    if (split && (all || works)) add(parts, part_name(role, "weight_windows"), m.weight_windows);
    if (all || works) add(parts, part_name(role, "gradients"), m.gradients);
    if (role.in_host && works) add(parts, lent_weights_name(role), m.weights);
  }
  const bool two = has_two_caches(plan, rank), validates = phase == kValidation;
  const bool generates = validates || (plan.generator() && phase == plan.generator()->traits->phase);
  const bool has_cache = plan.generates_on(rank) || (plan.trains(rank) && plan.validation.generates);
  const RolePlan& first = plan.generates_on(rank) ? *plan.generator() : plan.trainer();
  if (has_cache && (all || (generates && !(two && validates))))
    add_cache(parts, plan, held_by(plan, held, first, rank).cache, "kv");
  if (two && (all || validates))
    add_cache(parts, plan, held_by(plan, held, plan.trainer(), rank).cache, "validation");
  return parts;
}

/// Ranks that hold the same, in order of their first ones.
std::vector<std::vector<int>> kinds_of_ranks(const RunPlan& plan) {
  std::vector<std::vector<int>> kinds;
  std::map<std::vector<int>, size_t> known;
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    std::vector<int> kind{plan.shares_buffers(rank), rank == plan.trainer().ranks.front()};
    for (const RolePlan& role : plan.roles) kind.push_back(role.has(rank) ? role.stage_of(rank) + 1 : 0);
    const auto [at, is_new] = known.try_emplace(kind, kinds.size());
    if (is_new) kinds.emplace_back();
    kinds[at->second].push_back(rank);
  }
  return kinds;
}

/// `more`: of this phase alone; `window`: host memory of a save or an export.
MemoryRow row(const RunPlan& plan, const HeldModels& held, const std::vector<int>& ranks, const char* phase,
              const PhaseMemory& more, int64_t window) {
  const int rank = ranks.front();
  MemoryRow row{.ranks = ranks, .phase = phase, .device = {}, .host = {}};
  const bool one_memory = plan.device == Device::cpu;
  const auto take = [](MemoryParts& list, int64_t& sum, const MemoryParts& parts) {
    list.insert(list.end(), parts.begin(), parts.end());
    for (const auto& [name, bytes] : parts) sum = saturating_add(sum, bytes);
  };
  const auto computes_with = [&](const MemoryParts& parts) {
    one_memory ? take(row.host, row.host_bytes, parts) : take(row.device, row.device_bytes, parts);
  };
  MemoryParts phase_parts, windows;
  add(phase_parts, "activations", more.activations);
  add(phase_parts, "workspace", more.workspace);
  add(windows, "workspace", window);
  take(row.host, row.host_bytes, host_parts(plan, held, rank));
  computes_with(device_parts(plan, held, rank));
  computes_with(lent_parts(plan, held, rank, phase));
  computes_with(phase_parts);
  take(row.host, row.host_bytes, windows);
  return row;
}

}  // namespace

std::string gib_text(int64_t bytes) {
  return fmt::format("{:.3f} GiB", static_cast<double>(bytes) / 1073741824.0);
}

ExchangeMemory exchange_memory(const RunPlan& plan, int rank) {
  ExchangeMemory memory;
  for (const RolePlan& role : plan.roles) {
    if (!role.has(rank) || !(role.traits->leads() || plan.has_own_mesh(role))) continue;
    const ExchangeMemory of = mesh_memory(role);
    memory.joined += of.joined;
    memory.connections += of.connections;
  }
  if (memory.connections > 0) {
    memory.joined += kExchangeKernels / 2;
    memory.connections += kExchangeKernels / 2;
  }
  return memory;
}

int64_t saturating_multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

std::string lent_weights_name(const RolePlan& role) { return part_name(role, "weights_lent"); }

std::vector<MemoryRow> plan_memory(const RunPlan& plan, const RunModels& models, const Config& config) {
  HeldModels held;
  std::vector<std::vector<PhaseMemory>> works;
  for (const RolePlan& role : plan.roles) {
    held.push_back(model_memory(plan, role, models.held_for(role), config));
    const auto caches = cache_bytes(models.held_for(role), role, plan.dtype, plan.cache.page_tokens);
    for (size_t stage = 0; stage < caches.size(); ++stage) held.back().stages[stage].cache = caches[stage];
    works.push_back(work_memory(plan, role, models.held_for(role), config));
  }
  const RolePlan& trainer = plan.trainer();
  std::vector<PhaseMemory> validation;
  if ((plan.validation.generates || plan.validation.loss) && config.validation.in_run())
    validation = of_stages(trainer, models.policy, [&](const RoleStage& of) {
      return validation_memory(plan, models.policy, config, of);
    });
  std::vector<MemoryRow> memory;
  for (const std::vector<int>& ranks : kinds_of_ranks(plan)) {
    const int rank = ranks.front();
    const auto add_row = [&](const char* phase, const PhaseMemory& more, int64_t window = 0) {
      memory.push_back(row(plan, held, ranks, phase, more, window));
    };
    const auto add_stage = [&](const RolePlan& role, const char* phase,
                               const std::vector<PhaseMemory>& stages) {
      if (role.has(rank) && !stages.empty()) add_row(phase, stages[static_cast<size_t>(role.stage_of(rank))]);
    };
    for (size_t i = 0; i < works.size(); ++i) add_stage(plan.roles[i], plan.roles[i].traits->phase, works[i]);
    add_stage(trainer, kValidation, validation);
    if (trainer.has(rank)) add_row("save", {}, kSaveWindow);
    const bool exports = config.checkpoint.export_hf_every > 0 || !config.checkpoint.best.metric.empty();
    if (rank == trainer.ranks.front() && exports) add_row("export", {}, kExportWindow);
  }
  return memory;
}

std::vector<std::vector<MemoryRow>> rows_by_phase(const RunPlan& plan) {
  std::vector<std::vector<MemoryRow>> phases;
  for (const MemoryRow& row : plan.memory) {
    auto phase = std::find_if(phases.begin(), phases.end(), [&](const std::vector<MemoryRow>& rows) {
      return rows.front().phase == row.phase;
    });
    if (phase == phases.end()) phase = phases.insert(phase, std::vector<MemoryRow>{});
    const auto same = std::find_if(phase->begin(), phase->end(), [&](const MemoryRow& other) {
      return other.device == row.device && other.host == row.host;
    });
    if (same == phase->end())
      phase->push_back(row);
    else
      same->ranks.insert(same->ranks.end(), row.ranks.begin(), row.ranks.end());
  }
  for (std::vector<MemoryRow>& rows : phases) {
    for (MemoryRow& row : rows) std::sort(row.ranks.begin(), row.ranks.end());
    std::stable_sort(rows.begin(), rows.end(), [](const MemoryRow& a, const MemoryRow& b) {
      return std::tie(a.device_bytes, a.host_bytes) > std::tie(b.device_bytes, b.host_bytes);
    });
  }
  return phases;
}

int64_t process_bytes(const RunPlan& plan, int rank) {
  const bool writes = rank == plan.trainer().ranks.front();
  const int64_t driver = plan.device == Device::cuda ? kDriver : 0;
  return kProcess + driver + kTokenBytes * plan.vocab_size + (writes ? kWriter : 0) +
         kProcessPerRank * plan.num_ranks;
}

int64_t peak_bytes(const RunPlan& plan) {
  if (plan.device == Device::cpu) return host_peak_bytes(plan);
  int64_t peak = 0;
  for (const MemoryRow& row : plan.memory) peak = std::max(peak, row.device_bytes);
  return peak;
}

int64_t host_peak_bytes(const RunPlan& plan) {
  int64_t peak = 0;
  for (const MemoryRow& row : plan.memory) peak = std::max(peak, row.host_bytes);
  return peak;
}

}  // namespace temper
