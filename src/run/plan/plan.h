#pragma once
// Every number that follows from a config, the model's shape and the number of ranks, computed once: the
// batch arithmetic, who does what, lengths, cache size, memory. A pure function: no clock, no files, no free
// memory. `temper check` prints it and stops; every rank of a run computes the same. Nothing else derives
// such numbers.

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/comm/collectives.h"
#include "src/config/config.h"
#include "src/config/config_error.h"
#include "src/core/device.h"
#include "src/core/dtype.h"
#include "src/rl/routes.h"
#include "src/run/plan/layout/role_plan.h"
#include "src/run/plan/model_facts.h"

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
  int64_t bytes = 0;      // over all ranks
  int64_t most_sent = 0;  // by one trainer rank
  // By rank, each of them:
  std::vector<int64_t> messages;    // in its memory: what several get is there once
  std::vector<int64_t> in_message;  // most that it receives from one rank
  int64_t first_model = 0;          // by one trainer rank to the ranks that first have a whole model
};

/// Named bytes.
using MemoryParts = std::vector<std::pair<std::string, int64_t>>;

/// Bytes of one rank in one phase of a step, alike on all of `ranks`. What a CPU computes with is host
/// memory.
struct MemoryRow {
  std::vector<int> ranks;  // ascending
  std::string phase;       // that of a role, validation, save, export
  MemoryParts device, host;
  int64_t device_bytes = 0, host_bytes = 0;  // their sums
  /// Both lists; beside a GPU the names of host memory begin with "host_".
  MemoryParts all_parts() const;
  /// 0: there is none of this name.
  static int64_t bytes_of(const MemoryParts& parts, std::string_view name);
};

/// Tokens.
struct SequenceLengths {
  int64_t context = 0;
  int64_t max_prompt = 0, max_new = 0;
  int64_t longest = 0;                    // prompt and response
  int64_t steps_of_longest_response = 1;  // more than one with rollout.tokens_per_step
};

/// The cache of a rank that generates, with the most layers of a stage; 0 pages: none does.
struct CachePlan {
  int64_t page_tokens = 0, page_bytes = 0, pages = 0;
  int64_t state_bytes = 0;        // of a sequence in gated delta nets (rollout/state_cache.h), likewise
  int64_t running_sequences = 0;  // most of them at once, per rank: so many states
};

/// Longest prompt and response of a validation set; 0, 0: nothing is generated for it.
struct ValidationLengths {
  int64_t max_prompt = 0, max_new = 0;  // tokens
};

struct ValidationPlan {
  bool generates = false;               // it has data, rewards and lengths to do so
  bool loss = false;                    // on held-out responses (SFT)
  std::vector<ValidationLengths> sets;  // in the order of validation.data
  int64_t longest = 0;                  // tokens of a sequence, prompt and response
  int64_t max_prompt = 0;
};

struct RunPlan {
  std::string algorithm;
  bool generates = false;  // has a rollout phase
  int num_ranks = 0;
  Device device = Device::cpu;
  DType dtype = DType::f32;
  DType master = DType::f32, moments = DType::f32;  // StateFormats of the optimizer
  bool optimizer_in_host = false;                   // offloaded from the GPU
  std::set<std::string> frozen = {};                // ModelConfig::frozen of the policy
  RouteShape routes = {};                           // that are recorded; without layers: none are
  bool follows_routes = false;                      // in training
  std::string aux_losses = {};                      // of its routers, in words; empty: it has none
  AdapterConfig adapters = {};                      // ModelConfig::adapters of the policy
  int64_t num_parameters = 0;
  int64_t vocab_size = 0;
  std::vector<int64_t> media_token_ids = {};  // ModelConfig::media_token_ids
  int64_t steps = 0;
  BatchPlan batch;
  std::span<const RoleTraits> rows;  // all roles that there are
  std::vector<RolePlan> roles;       // of this run, in the order of their phases
  /// The role that trains the policy.
  const RolePlan& trainer() const;
  /// The role that generates with the policy; null: none does.
  const RolePlan* generator() const;
  /// Null when the run has no such role.
  const RolePlan* role(std::string_view name) const;
  bool trains(int rank) const { return trainer().has(rank); }
  bool generates_on(int rank) const { return generator() && generator()->has(rank); }
  /// A model says what is right, and rewards are not needed.
  bool taught() const;
  bool advantages_by_token = false;  // those of a response may differ
  /// Roles that add a log-prob to each token of the responses.
  int64_t num_scorers() const;
  int64_t max_policy_lag = 0;
  WeightTraffic weights;  // of a version
  /// What a rank trains is what it generates with: the two roles have it in the same team.
  bool shares_buffers(int rank) const;
  /// Those that share a model of the role with this rank of it are in the trainer's grid what they are there.
  bool in_trainer_mesh(const RolePlan& role, int rank) const;
  /// The frozen weights that this rank has for the role are the base of those that it trains.
  bool shares_base(const RolePlan& role, int rank) const {
    return adapters.on() && role.shares_base(trainer(), rank);
  }
  bool shares_base(const RolePlan& role) const { return adapters.on() && role.shares_base(trainer()); }
  /// Ranks of a role beside the trainer share a model, not all of them as the trainer's do.
  bool has_own_mesh(const RolePlan& role) const;
  /// Ranks that generate with weights of their own: what they lack of every version comes in messages.
  std::vector<int> weight_receivers() const;
  SequenceLengths lengths;
  int64_t max_tokens_per_microbatch = 0;  // of a rank
  int64_t least_tokens_of_stages = 0;     // of a rank: smaller ones keep stages busy; 0: none is smaller
  /// The least that holds the longest sequence.
  int64_t least_budget() const;
  /// The tokens of a micro-batch of a role, on all of the ranks that share one.
  int64_t budget_of(const RolePlan& with) const {
    return with.traits->leads() ? microbatch_tokens()
                                : std::max(max_tokens_per_microbatch * with.cp(), lengths.longest);
  }
  int64_t microbatch_tokens() const { return max_tokens_per_microbatch * trainer().cp(); }
  /// The least of a role's stages, of the ranks together that share one; 0: none is made smaller for them.
  /// Where there are shards of gradients or weights, every one would cost a sum or a gather of all.
  int64_t least_of_stages(const RolePlan& with) const {
    const bool cut = with.pp() > 1 && (with.zero == 1 || with.replicas() == 1);
    return cut ? least_tokens_of_stages * with.cp() : 0;
  }
  CachePlan cache;
  std::vector<int> profiled_steps;
  ValidationPlan validation;
  /// What the run is too short for, in words.
  std::vector<std::string> idle_keys;
  std::vector<MemoryRow> memory;
};

/// The run's largest phase, had it other keys.
struct MemoryChoice {
  std::string recompute;  // train.recompute.granularity
  bool optimizer_in_host = false;
  int64_t device_bytes = 0, host_bytes = 0;
};

/// Bytes of a step.
struct RoleTraffic {
  const RoleTraits* role = nullptr;
  AxisBytes bytes;
};

struct PlanResult {
  RunPlan plan;
  bool complete = false;  // the plan; errors are of files that the config names then
  std::vector<PlanError> errors;
  std::vector<std::string> warnings;
  std::vector<MemoryChoice> choices = {};  // where they were asked for: run/plan/memory/memory_choices.h
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
PlanResult try_plan(const Config& config, int num_ranks, const RunModels& models,
                    const MemoryLimits& limits = {});

/// Only the errors of try_plan.
std::vector<PlanError> validate(const Config& config, int num_ranks, const RunModels& models);

/// The plan, or Error(Exit::usage) with all errors.
RunPlan make_plan(const LoadedConfig& loaded, int num_ranks, const RunModels& models,
                  const MemoryLimits& limits = {});

/// Files and folders that the config names and that are not there (relative to the working folder).
std::vector<PlanError> validate_paths(const Config& config);

/// Error(Exit::usage) with those of validate_paths; `unused` keys are not looked at.
void require_paths(const LoadedConfig& loaded, const std::vector<std::string>& unused);

/// Says of each error where its key was written.
void add_origins(std::vector<PlanError>& errors, const LoadedConfig& loaded);

}  // namespace temper
