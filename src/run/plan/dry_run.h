#pragma once
// What the phases of a step take, asked of the code that takes it: models, trainer and engine run on a device
// where arenas count and kernels do nothing. On a real one they do the same with memory and zeros as weights,
// which shows that the count is right.

#include <optional>
#include <vector>

#include "src/comm/collectives.h"
#include "src/core/device.h"
#include "src/run/plan/memory/cache_bytes.h"

namespace temper {

/// Bytes that a rank holds from start to end.
struct TrainedMemory {
  int64_t weights = 0;         // whole; split while they are trained: not then
  int64_t weight_shards = 0;   // all the time, where they are split then
  int64_t weight_windows = 0;  // where they are split: while they are trained
  int64_t gradients = 0;
  int64_t adapters = 0;   // of the weights, those of adapters
  int64_t optimizer = 0;  // of the first of the stage's ranks, which has most
  CacheBytes cache = {};  // were it to generate
};
/// What ranks of a role have of its model, by stage.
struct ModelMemory {
  std::vector<TrainedMemory> stages;  // of those that do not train: weights alone, or shards and windows
  int64_t tables = 0;
};
ModelMemory model_memory(const RunPlan& plan, const RolePlan& role, const ModelConfig& model,
                         const Config& config);

/// Most bytes in use at once.
struct PhaseMemory {
  int64_t activations = 0, workspace = 0;  // kept for backward; everything else
};
/// Whose model is worked with, and what of it.
struct RoleStage {
  const RolePlan& role;
  int stage = 0;
};
/// One full micro-batch of each kind that may take most, on a stage of a role that trains: of the longest
/// sequences, and of the most targets.
struct MicrobatchMemory {
  PhaseMemory memory;
  int64_t sequences = 0;
};
std::vector<MicrobatchMemory> microbatch_memory(const RunPlan& plan, const ModelConfig& model,
                                                const Config& config, const RoleStage& of,
                                                std::optional<Device> real = {});
/// Log-probs of such micro-batches.
PhaseMemory logprob_memory(const RunPlan& plan, const ModelConfig& model, const Config& config,
                           const RoleStage& of, std::optional<Device> real = {});
/// The engine's batch with the most rows.
PhaseMemory generate_memory(const RunPlan& plan, const ModelConfig& model, const Config& config,
                            const RoleStage& of, std::optional<Device> real = {});
/// What the validation of the plan takes: generation, and log-probs of held-out responses, as many of them as
/// a micro-batch holds.
PhaseMemory validation_memory(const RunPlan& plan, const ModelConfig& model, const Config& config,
                              const RoleStage& of);

/// A rank's place in the layout of a role.
struct GridPlace {
  PerAxis<int> at = {};
  int replica = 0, expert_replica = 0;  // among those that share the optimizer's state, of experts
};
/// What this rank sends in an update of so many of the longest sequences, all of them its own.
AxisBytes update_bytes(const RunPlan& plan, const RolePlan& role, const ModelConfig& model,
                       const Config& config, const GridPlace& place, int64_t sequences);
/// What a rank of a role, one of those that share the model, sends for the log-probs of one of the longest
/// sequences.
AxisBytes logprob_bytes(const RunPlan& plan, const RolePlan& role, const ModelConfig& model,
                        const Config& config, const GridPlace& place);

}  // namespace temper
