#pragma once
// Every number that follows from a config, the model's shape and the number of ranks, computed once: the
// batch arithmetic, who does what, lengths, cache size, memory. A pure function: no clock, no files, no free
// memory. `temper check` prints it and stops; every rank of a run computes the same. Nothing else derives
// such numbers.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/comm/collectives.h"
#include "src/config/config.h"
#include "src/config/config_error.h"
#include "src/core/device.h"
#include "src/core/dtype.h"
#include "src/models/stages.h"
#include "src/nn/parallel/row_moves.h"

namespace temper {

using PlanError = ConfigError;

/// "cpu" or "cuda".
std::string_view device_name(Device device);
/// "auto" is bf16 on a GPU and fp32 on the CPU.
DType resolve_dtype(std::string_view dtype, Device device);
/// Why this type does not run on this device; empty: it does.
std::string dtype_defect(std::string_view dtype, Device device);

struct BatchPlan {
  int64_t prompts_per_step = 0;    // sft: lines of data
  int64_t samples_per_prompt = 0;  // sft: 1
  int64_t samples_per_step = 0;
  int64_t samples_per_update = 0;
  int64_t updates_per_step = 0;  // of one epoch
  int64_t epochs_per_step = 0;
  int64_t updates_total = 0;        // steps x updates_per_step x epochs_per_step
  int64_t last_update_samples = 0;  // less than samples_per_update only with last_partial = "keep"
  int64_t dropped_samples = 0;      // per step, only with last_partial = "drop"
};

/// What a version of the weights sends from trainer ranks to ranks that generate with buffers of their own.
struct WeightTraffic {
  int64_t bytes = 0;            // over all ranks
  int64_t most_sent = 0;        // by one trainer rank
  int64_t most_messages = 0;    // the same in its memory: what several get is there once
  int64_t most_in_message = 0;  // from one rank to another
  int64_t first_model = 0;      // by one trainer rank to the ranks that first have a whole model
};

enum class RoleKind { rollout, reference, trainer };
/// As config, reports and `check --json` call it.
std::string_view role_name(RoleKind kind);

struct RolePlan {
  RoleKind kind = RoleKind::trainer;
  std::vector<int> ranks;                    // ascending
  int tp = 1;                                // neighbours that share the model
  int cp = 1;                                // those that share the tokens of micro-batches
  std::vector<LayerRanges> stages = {{{}}};  // layers of each stage of a pipeline, in one part or several
  int pp() const { return static_cast<int>(stages.size()); }
  /// Parts of each stage (virtual stages): part c of stage s is number c * pp + s of all.
  int vpp() const { return static_cast<int>(stages.front().size()); }
  /// All of them in the order of layers.
  LayerRanges parts() const;
  /// The same stages with as many layers in one part each.
  std::vector<LayerRanges> whole_stages() const;
  int dp() const { return static_cast<int>(ranks.size()) / tp / cp / pp(); }
  int zero = 1;  // 2: a rank of the trainer keeps its shard of gradients; 3: of weights, as of the reference
  int ranks_of_stage() const { return static_cast<int>(ranks.size()) / pp(); }
  /// Among the ranks of the role, which this one has.
  int number_of(int rank) const;
  int stage_of(int rank) const;
  /// The same for stages with as many layers at the same end of the model, which hold and send the same.
  std::array<int64_t, 3> stage_kind(int stage) const {
    return {stage == 0, stage == pp() - 1, num_layers(stages[static_cast<size_t>(stage)])};
  }
  const LayerRanges& layers_of(int rank) const { return stages[static_cast<size_t>(stage_of(rank))]; }
  /// Of a stage.
  int64_t most_layers() const;
  /// Ranks with the same part of the model, which share the optimizer's state.
  int replicas() const { return cp * dp(); }
  UnitShards unit_shards(int replica) const {
    return zero > 1 ? UnitShards{replica, replicas(), zero > 2, kind != RoleKind::trainer} : UnitShards{};
  }
  bool splits_weights() const { return zero > 2 && replicas() > 1; }
  /// Weights are shards in every phase, not only while they are trained.
  bool keeps_shards() const { return splits_weights() && kind == RoleKind::reference; }
  Holders holders() const { return {static_cast<int>(ranks.size()), tp, stage_units(stages)}; }
  /// A team does the same work together: in each stage the neighbours of tp, and but for the trainer of cp;
  /// where a reference has shards of weights all that gather them.
  int team_of_stage() const {
    if (kind == RoleKind::trainer) return tp;
    return tp * (keeps_shards() ? replicas() : cp);
  }
  int team_size() const { return team_of_stage() * pp(); }
  int teams() const { return static_cast<int>(ranks.size()) / team_size(); }
  /// Of a rank that has the role.
  int team_number(int rank) const;
  std::vector<int> team(int rank) const { return through_stages(rank, team_of_stage()); }
  /// So many neighbours that this rank, which has the role, is one of, and those in their places of the other
  /// stages; stage after stage.
  std::vector<int> through_stages(int rank, int neighbours) const;
  /// The first ranks of the teams: what others hand to the role goes to them, and what it makes comes from
  /// them.
  std::vector<int> leaders() const;
};

/// Bytes of one rank in one phase of a step, alike on all of `ranks`; `parts` add up to device_bytes +
/// host_bytes. Beside a GPU the names of those in host memory begin with "host_".
struct MemoryRow {
  std::vector<int> ranks;  // ascending
  std::string phase;       // generate, reference, train, validation, save, export
  int64_t device_bytes = 0, host_bytes = 0;
  std::vector<std::pair<std::string, int64_t>> parts;
};

struct RunPlan {
  std::string algorithm;
  bool generates = false;        // has a rollout phase
  bool needs_reference = false;  // keeps a frozen copy of the first weights
  int num_ranks = 0;
  Device device = Device::cpu;
  DType dtype = DType::f32;
  DType master = DType::f32, moments = DType::f32;            // StateFormats of the optimizer
  bool optimizer_in_host = false, reference_in_host = false;  // offloaded from the GPU
  int64_t num_parameters = 0;
  int64_t vocab_size = 0;
  int64_t steps = 0;
  BatchPlan batch;
  std::vector<RolePlan> roles;  // in the order of their phases
  int64_t max_policy_lag = 0;
  WeightTraffic weights;  // of a version
  /// What a rank trains is what it generates with: the two roles have it in the same team.
  bool shares_buffers(int rank) const;
  /// Those that share a model of the role with this rank of it are in the trainer's grid what they are there.
  bool in_trainer_mesh(const RolePlan& role, int rank) const;
  /// Ranks of a role beside the trainer share a model, not all of them as the trainer's do.
  bool has_own_mesh(const RolePlan& role) const;
  /// Ranks that generate with weights of their own: what they lack of every version comes in messages.
  std::vector<int> weight_receivers() const;
  int64_t context_tokens = 0;
  int64_t max_prompt_tokens = 0, max_new_tokens = 0;
  int64_t steps_of_longest_response = 1;  // more than one with rollout.tokens_per_step
  int64_t longest_sequence = 0;           // tokens, prompt and response
  int64_t max_tokens_per_microbatch = 0;  // of a rank
  int64_t least_tokens_of_stages = 0;     // of a rank: smaller ones keep stages busy; 0: none is smaller
  /// The least that holds the longest sequence.
  int64_t least_budget() const;
  /// Of a reference, whose ranks may share tokens in another way.
  int64_t reference_budget() const {
    return std::max(max_tokens_per_microbatch * role(RoleKind::reference)->cp, longest_sequence);
  }
  /// Of the ranks together that share one.
  int64_t microbatch_tokens() const { return max_tokens_per_microbatch * role(RoleKind::trainer)->cp; }
  /// The least of a role's stages, of the ranks together that share one; 0: none is made smaller for them.
  /// Where there are shards of gradients or weights, every one would cost a sum or a gather of all.
  int64_t least_of_stages(const RolePlan& with) const {
    const bool cut = with.pp() > 1 && (with.zero == 1 || with.replicas() == 1);
    return cut ? least_tokens_of_stages * with.cp : 0;
  }
  // Of a rank that generates, with the most layers of a stage; 0 pages: none does.
  int64_t kv_page_tokens = 0, kv_page_bytes = 0, kv_pages = 0;
  int64_t validation_page_bytes = 0;  // on trainer ranks
  int64_t running_sequences = 0;      // most of them at once, per rank
  std::vector<int> profiled_steps;
  bool validates = false;  // has data, rewards and lengths to validate with
  int64_t validation_max_prompt_tokens = 0, validation_max_new_tokens = 0;
  std::vector<MemoryRow> memory;

  /// Null when the run has no such role.
  const RolePlan* role(RoleKind kind) const;
  bool has_role(RoleKind kind, int rank) const;
};

/// The run's largest phase, had it other keys.
struct MemoryChoice {
  std::string recompute;  // train.recompute.granularity
  bool optimizer_in_host = false;
  int64_t device_bytes = 0, host_bytes = 0;
};

/// Bytes of a step.
struct RoleTraffic {
  RoleKind role = RoleKind::trainer;
  AxisBytes bytes;
};

struct PlanResult {
  RunPlan plan;
  bool complete = false;  // the plan; errors are of files that the config names then
  std::vector<PlanError> errors;
  std::vector<std::string> warnings;
  std::vector<MemoryChoice> choices = {};  // where they were asked for: run/plan/memory_choices.h
  std::vector<RoleTraffic> traffic = {};   // the same: run/plan/axis_traffic.h
};

/// Most bytes of a rank in one memory; 0: unlimited.
struct MemoryLimit {
  int64_t bytes = 0;
  std::string of = "--device-memory";  // where it comes from
};

/// `device`: the memory that a rank computes in, of the GPU or on the CPU that of the host.
struct MemoryLimits {
  MemoryLimit device, host;
};

/// The plan with all its errors and warnings.
PlanResult try_plan(const Config& config, int num_ranks, const ModelConfig& facts,
                    const MemoryLimits& limits = {});

/// Only the errors of try_plan.
std::vector<PlanError> validate(const Config& config, int num_ranks, const ModelConfig& facts);

/// The plan, or Error(Exit::usage) with all errors.
RunPlan make_plan(const LoadedConfig& loaded, int num_ranks, const ModelConfig& facts,
                  const MemoryLimits& limits = {});

/// Files and folders that the config names and that are not there (relative to the working folder).
std::vector<PlanError> validate_paths(const Config& config);

/// Error(Exit::usage) with those of validate_paths; `unused` keys are not looked at.
void require_paths(const LoadedConfig& loaded, const std::vector<std::string>& unused);

/// Says of each error where its key was written.
void add_origins(std::vector<PlanError>& errors, const LoadedConfig& loaded);

}  // namespace temper
