#include "src/run/plan/memory_choices.h"

#include "src/run/plan/memory.h"

namespace temper {
namespace {

/// Of a GPU on PCIe 5 x16: bytes of state that an update reads and writes back, and bytes that a copy brings,
/// in a second.
constexpr double kStateRate = 42e9, kCopyRate = 55e9;

int64_t part_bytes(const RunPlan& plan, const char* phase, const char* name) {
  for (const MemoryRow& row : plan.memory)
    if (row.phase == phase)
      for (const auto& [part, bytes] : row.parts)
        if (part == name) return bytes;
  return 0;
}

}  // namespace

std::vector<MemoryChoice> memory_choices(const RunPlan& plan, const ModelConfig& model,
                                         const Config& config) {
  std::vector<MemoryChoice> choices;
  if (plan.device != Device::cuda) return choices;
  for (const char* recompute : {"none", "selective", "full"})
    for (const bool in_host : {false, true}) {
      Config other = config;
      other.train.recompute.granularity = recompute;
      RunPlan changed = plan;
      changed.optimizer_in_host = in_host;
      const bool same = recompute == config.train.recompute.granularity && in_host == plan.optimizer_in_host;
      if (!same) changed.memory = plan_memory(changed, model, other);
      choices.push_back({recompute, in_host, peak_bytes(changed), host_peak_bytes(changed)});
    }
  return choices;
}

double offload_seconds(const RunPlan& plan) {
  const auto updates = static_cast<double>(plan.batch.updates_per_step * plan.batch.epochs_per_step);
  double seconds = 0;
  if (plan.optimizer_in_host)
    seconds += updates * static_cast<double>(part_bytes(plan, "train", "host_optimizer")) / kStateRate;
  if (plan.reference_in_host)
    seconds += static_cast<double>(part_bytes(plan, "reference", "reference_weights_lent")) / kCopyRate;
  return seconds;
}

}  // namespace temper
