#include "src/run/plan/memory.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>

#include "src/comm/gpu/neighbours.h"
#include "src/core/check.h"
#include "src/run/plan/dry_run.h"
#include "src/train/schedule.h"

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

/// Of a process with a GPU: the driver, cuBLASLt, pinned windows.
constexpr int64_t kDriver = int64_t{880} << 20;
constexpr int64_t kProcess = int64_t{38} << 20, kWriter = int64_t{12} << 20,
                  kProcessPerRank = int64_t{1} << 20;
/// Of the tokenizer for each id: its token in both directions, its merge, and what reading the file leaves in
/// the heap. Measured with Qwen3's.
constexpr int64_t kTokenBytes = 256;

/// Trajectories of a step: ids, mask, log-probs of policy and reference.
int64_t step_bytes(const RunPlan& plan) {
  const int64_t response = plan.max_new_tokens * (4 + 1 + 8 + (plan.needs_reference ? 8 : 0));
  return saturating_multiply(plan.batch.samples_per_step, response + 4 * plan.max_prompt_tokens);
}

/// Of the stage of a rank that has the role.
template <class T>
const T& on_stage(const RunPlan& plan, RoleKind kind, int rank, const std::vector<T>& stages) {
  return stages[static_cast<size_t>(plan.role(kind)->stage_of(rank))];
}

/// `measure` of each stage of a role; stages alike are measured once.
template <class Measure>
std::vector<PhaseMemory> of_stages(const RunPlan& plan, RoleKind kind, const Measure& measure) {
  const RolePlan& role = *plan.role(kind);
  std::map<std::array<int64_t, 3>, PhaseMemory> known;
  std::vector<PhaseMemory> stages;
  for (int stage = 0; stage < role.pp(); ++stage) {
    const auto [at, is_new] = known.try_emplace(role.stage_kind(stage));
    if (is_new) at->second = measure(RoleStage{kind, stage});
    stages.push_back(at->second);
  }
  return stages;
}

/// Of an update, by one full micro-batch with so many sequences: those in flight, by parts, the last one not
/// full where the update has no more sequences, and what is made for other ranks until it is sent.
PhaseMemory in_flight(const RunPlan& plan, const ModelConfig& model, int stage, const MicrobatchMemory& of) {
  const RolePlan& trainer = *plan.role(RoleKind::trainer);
  const PipelineShape shape{trainer.pp(), trainer.vpp()};
  const int64_t update = (plan.batch.samples_per_update - 1) / trainer.dp() + 1;
  // More than a few do not change how many there are at once.
  const int64_t all = std::clamp<int64_t>((update - 1) / of.sequences + 1, 1, 4 * trainer.pp());
  const int64_t kept = std::min(saturating_multiply(of.sequences, most_kept(shape, stage, all)),
                                saturating_multiply(update, trainer.vpp()));
  const int64_t borders = schedule(shape, stage, all, training_steps).borders;
  const int64_t rows = plan.microbatch_tokens() / trainer.cp / trainer.tp + 1;
  const int64_t more = saturating_multiply(std::max<int64_t>(0, borders - 1),
                                           rows * model.hidden_size * dtype_size(plan.dtype));
  return {saturating_multiply(of.memory.activations / of.sequences / trainer.vpp(), kept),
          saturating_add(of.memory.workspace, more)};
}

/// An update whose micro-batches are as full as they can be, on each stage of the trainer.
std::vector<PhaseMemory> train_memory(const RunPlan& plan, const ModelConfig& model, const Config& config) {
  const RolePlan& trainer = *plan.role(RoleKind::trainer);
  std::map<std::array<int64_t, 3>, std::vector<MicrobatchMemory>> known;
  std::vector<PhaseMemory> stages;
  for (int stage = 0; stage < trainer.pp(); ++stage) {
    const auto [at, is_new] = known.try_emplace(trainer.stage_kind(stage));
    if (is_new) at->second = microbatch_memory(plan, model, config, stage);
    PhaseMemory& most = stages.emplace_back();
    for (const MicrobatchMemory& one : at->second) {
      const PhaseMemory all = in_flight(plan, model, stage, one);
      most = {std::max(most.activations, all.activations), std::max(most.workspace, all.workspace)};
    }
  }
  return stages;
}

/// A page of this rank's layers.
int64_t page_bytes(const RunPlan& plan, RoleKind kind, int rank) {
  const RolePlan& role = *plan.role(kind);
  const int64_t most = kind == RoleKind::rollout ? plan.kv_page_bytes : plan.validation_page_bytes;
  return most / role.most_layers() * num_layers(role.layers_of(rank));
}

/// What a rank that trains has of the model.
const TrainedMemory& trained_by(const RunPlan& plan, const ModelMemory& model, int rank) {
  return on_stage(plan, RoleKind::trainer, rank, model.stages);
}

/// Of the trainer's weights its ranks keep shards while they train (ZeRO-3).
bool splits_weights(const RunPlan& plan) { return plan.role(RoleKind::trainer)->splits_weights(); }

bool uses_cache(const RunPlan& plan, int rank) {
  return plan.has_role(RoleKind::rollout, rank) || (plan.has_role(RoleKind::trainer, rank) && plan.validates);
}

/// The validation has a cache beside that of the rollout.
bool has_two_caches(const RunPlan& plan, int rank) {
  return plan.has_role(RoleKind::rollout, rank) && plan.has_role(RoleKind::trainer, rank) && plan.validates &&
         !plan.shares_buffers(rank);
}

/// Versions that WeightSync keeps: with a lag, where ranks only generate.
int64_t versions_kept(const RunPlan& plan) {
  const RolePlan* rollout = plan.role(RoleKind::rollout);
  const auto trains = [&](int rank) { return plan.has_role(RoleKind::trainer, rank); };
  if (!rollout || plan.max_policy_lag == 0 ||
      std::any_of(rollout->ranks.begin(), rollout->ranks.end(), trains))
    return 0;
  return std::min<int64_t>(plan.max_policy_lag, 2) + 1;
}

/// Host memory of a rank, beside what a CPU computes with.
Parts host_parts(const RunPlan& plan, const ModelMemory& model, int rank) {
  const bool trains = plan.has_role(RoleKind::trainer, rank),
             generates = plan.has_role(RoleKind::rollout, rank);
  Parts parts;
  parts.add("process", process_bytes(plan, rank));
  const WeightTraffic& weights = plan.weights;
  // Both keep the memory of messages; with versions that are kept the last one is what goes out.
  const int64_t kept = saturating_multiply(weights.first_model, versions_kept(plan));
  if (trains) parts.add("weights_sent", std::max(weights.most_messages, kept));
  if (generates && !plan.shares_buffers(rank)) parts.add("weights_received", weights.most_in_message);
  // All trajectories of a step, on trainer ranks of every step that can be under way.
  parts.add("trajectories", saturating_multiply(step_bytes(plan), trains ? plan.max_policy_lag + 1 : 1));
  if (trains && plan.optimizer_in_host) parts.add("optimizer", trained_by(plan, model, rank).optimizer);
  if (plan.has_role(RoleKind::reference, rank) && plan.reference_in_host)
    parts.add("reference_weights", on_stage(plan, RoleKind::reference, rank, model.reference_weights));
  if (plan.steps_of_longest_response > 1 && (trains || generates))
    parts.add("unfinished", saturating_multiply(step_bytes(plan), plan.steps_of_longest_response - 1));
  return parts;
}

/// Of an axis with so many ranks, neighbours in blocks of `block` ranks; with `peers` of them a rank
/// exchanges.
ExchangeMemory axis_memory(int along, int block, int peers) {
  if (along == 1) return {};
  const bool near = block <= kLinkedGpus;
  const int on_host = near ? along : std::max(1, along * kLinkedGpus / block);
  const int64_t inboxes = (on_host - 1) * Inbox::kRankBytes;
  if (near) return {inboxes, 0};
  return {kJoined + inboxes, peers * kFarPeer};
}

ExchangeMemory mesh_memory(const RolePlan& role) {
  const bool sums = role.kind == RoleKind::trainer || role.keeps_shards();  // gradients, or shards of weights
  const int stage = role.ranks_of_stage(), all = static_cast<int>(role.ranks.size());
  ExchangeMemory memory;
  for (const ExchangeMemory& axis :
       {axis_memory(role.tp, role.tp, role.tp - 1), axis_memory(role.cp, role.tp * role.cp, role.cp - 1),
        axis_memory(role.dp(), stage, sums && role.cp == 1 ? role.dp() - 1 : 0),
        axis_memory(role.cp > 1 ? role.replicas() : 1, stage, sums ? role.replicas() - 1 : 0),
        axis_memory(role.pp(), all, std::min(2, role.pp() - 1))}) {
    memory.joined += axis.joined;
    memory.connections += axis.connections;
  }
  return memory;
}

/// Memory of the device from start to end.
Parts device_parts(const RunPlan& plan, const ModelMemory& model, int rank) {
  const bool trains = plan.has_role(RoleKind::trainer, rank),
             generates = plan.has_role(RoleKind::rollout, rank);
  const int64_t rollout_weights =
      generates ? on_stage(plan, RoleKind::rollout, rank, model.rollout_weights) : 0;
  Parts parts;
  if (plan.device == Device::cuda) {
    parts.add("context", kGpuContext);
    parts.add("product_trials", kProductTrials);
    const ExchangeMemory exchanges = exchange_memory(plan, rank);
    parts.add("exchanges", exchanges.joined + exchanges.connections);
  }
  if (trains && splits_weights(plan))
    parts.add("weight_shards", trained_by(plan, model, rank).weight_shards);
  else if (trains || generates)
    parts.add("weights", trains ? trained_by(plan, model, rank).weights : rollout_weights);
  if (trains || generates) parts.add("rope_tables", model.tables);
  // Shared in another way than those that are trained.
  if (trains && generates && !plan.shares_buffers(rank))
    parts.add("rollout_weights", saturating_add(rollout_weights, model.tables));
  if (trains && !plan.optimizer_in_host) parts.add("optimizer", trained_by(plan, model, rank).optimizer);
  if (plan.has_role(RoleKind::reference, rank))
    parts.add(
        "reference_weights",
        saturating_add(
            plan.reference_in_host ? 0 : on_stage(plan, RoleKind::reference, rank, model.reference_weights),
            model.tables));
  return parts;
}

/// What phases lend to each other on a GPU, and a CPU holds from start to end.
Parts lent_parts(const RunPlan& plan, const ModelMemory& model, int rank, std::string_view phase) {
  const bool all = plan.device == Device::cpu, generates = phase == "generate" || phase == "validation";
  Parts parts;
  const bool trains = plan.has_role(RoleKind::trainer, rank), split = trains && splits_weights(plan);
  if (split && (all || phase != "train")) parts.add("weights", trained_by(plan, model, rank).weights);
  if (split && (all || phase == "train"))
    parts.add("weight_windows", trained_by(plan, model, rank).weight_windows);
  if (trains && (all || phase == "train")) parts.add("gradients", trained_by(plan, model, rank).gradients);
  if (plan.reference_in_host && phase == "reference")
    parts.add("reference_weights_lent", on_stage(plan, RoleKind::reference, rank, model.reference_weights));
  const bool two = has_two_caches(plan, rank), validates = phase == "validation";
  const RoleKind first = plan.has_role(RoleKind::rollout, rank) ? RoleKind::rollout : RoleKind::trainer;
  const auto cache = [&](RoleKind of) {
    return saturating_multiply(plan.kv_pages, page_bytes(plan, of, rank));
  };
  if (uses_cache(plan, rank) && (all || (generates && !(two && validates))))
    parts.add("kv_cache", cache(first));
  if (two && (all || validates)) parts.add("validation_cache", cache(RoleKind::trainer));
  return parts;
}

/// Ranks that hold the same, in order of their first ones.
std::vector<std::vector<int>> kinds_of_ranks(const RunPlan& plan) {
  std::vector<std::vector<int>> kinds;
  std::map<std::pair<std::array<bool, 5>, std::array<int, 3>>, size_t> known;
  const RolePlan& trainer = *plan.role(RoleKind::trainer);
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    const bool trains = plan.has_role(RoleKind::trainer, rank);
    const std::array<bool, 5> roles{plan.has_role(RoleKind::rollout, rank),
                                    plan.has_role(RoleKind::reference, rank), trains,
                                    plan.shares_buffers(rank), rank == trainer.ranks.front()};
    const auto stage = [&](RoleKind kind) {
      return plan.has_role(kind, rank) ? plan.role(kind)->stage_of(rank) : 0;
    };
    const auto [at, is_new] = known.try_emplace(
        {roles, {stage(RoleKind::rollout), stage(RoleKind::reference), stage(RoleKind::trainer)}},
        kinds.size());
    if (is_new) kinds.emplace_back();
    kinds[at->second].push_back(rank);
  }
  return kinds;
}

/// `more`: of this phase alone; `window`: host memory of a save or an export.
MemoryRow row(const RunPlan& plan, const ModelMemory& held, const std::vector<int>& ranks, const char* phase,
              const PhaseMemory& more, int64_t window) {
  const int rank = ranks.front();
  MemoryRow row{.ranks = ranks, .phase = phase, .device_bytes = 0, .host_bytes = 0, .parts = {}};
  const bool one_memory = plan.device == Device::cpu;
  int64_t& device = one_memory ? row.host_bytes : row.device_bytes;
  const auto take = [&](const Parts& parts, int64_t& bytes) {
    for (const auto& [name, size] : parts.list) {
      row.parts.emplace_back(&bytes == &row.host_bytes && !one_memory ? "host_" + name : name, size);
      bytes = saturating_add(bytes, size);
    }
  };
  Parts phase_parts, windows;
  phase_parts.add("activations", more.activations);
  phase_parts.add("workspace", more.workspace);
  windows.add("workspace", window);
  take(host_parts(plan, held, rank), row.host_bytes);
  take(device_parts(plan, held, rank), device);
  take(lent_parts(plan, held, rank, phase), device);
  take(phase_parts, device);
  take(windows, row.host_bytes);
  return row;
}

}  // namespace

std::string gib_text(int64_t bytes) {
  return fmt::format("{:.3f} GiB", static_cast<double>(bytes) / 1073741824.0);
}

ExchangeMemory exchange_memory(const RunPlan& plan, int rank) {
  ExchangeMemory memory;
  for (const RolePlan& role : plan.roles) {
    if (!plan.has_role(role.kind, rank)) continue;
    if (role.kind != RoleKind::trainer && !plan.has_own_mesh(role)) continue;
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

std::vector<MemoryRow> plan_memory(const RunPlan& plan, const ModelConfig& model, const Config& config) {
  const ModelMemory held = model_memory(plan, model, config);
  const RolePlan& trainer = *plan.role(RoleKind::trainer);
  const std::vector<PhaseMemory> train = train_memory(plan, model, config);
  const bool validates = plan.validates && config.validation.every > 0;
  const auto generates = [&](const RoleStage& of) { return generate_memory(plan, model, config, of); };
  std::vector<PhaseMemory> reference, generate, validation;
  if (plan.needs_reference)
    reference = of_stages(plan, RoleKind::reference,
                          [&](const RoleStage& of) { return logprob_memory(plan, model, config, of); });
  if (plan.generates) generate = of_stages(plan, RoleKind::rollout, generates);
  if (validates) validation = of_stages(plan, RoleKind::trainer, generates);
  std::vector<MemoryRow> memory;
  for (const std::vector<int>& ranks : kinds_of_ranks(plan)) {
    const int rank = ranks.front();
    const auto add = [&](const char* phase, const PhaseMemory& more, int64_t window = 0) {
      memory.push_back(row(plan, held, ranks, phase, more, window));
    };
    const auto add_stage = [&](RoleKind kind, const char* phase, const std::vector<PhaseMemory>& stages) {
      if (plan.has_role(kind, rank) && !stages.empty()) add(phase, on_stage(plan, kind, rank, stages));
    };
    add_stage(RoleKind::rollout, "generate", generate);
    add_stage(RoleKind::reference, "reference", reference);
    add_stage(RoleKind::trainer, "train", train);
    add_stage(RoleKind::trainer, "validation", validation);
    if (plan.has_role(RoleKind::trainer, rank)) add("save", {}, kSaveWindow);
    if (rank == trainer.ranks.front() && config.checkpoint.export_hf_every > 0)
      add("export", {}, kExportWindow);
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
    const auto same = std::find_if(phase->begin(), phase->end(),
                                   [&](const MemoryRow& other) { return other.parts == row.parts; });
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
  const bool writes = rank == plan.role(RoleKind::trainer)->ranks.front();
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
