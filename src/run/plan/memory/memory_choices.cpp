#include "src/run/plan/memory/memory_choices.h"

#include "src/run/plan/memory/memory.h"

namespace temper {
namespace {

/// What a GPU on PCIe 5 x16 does in a second: bytes of state that an update reads and writes back, and bytes
/// that a copy brings.
constexpr double kStateRate = 42e9, kCopyRate = 55e9;

const MemoryRow* row_of(const RunPlan& plan, std::string_view phase) {
  for (const MemoryRow& row : plan.memory)
    if (row.phase == phase) return &row;
  return nullptr;
}

}  // namespace

std::vector<MemoryChoice> memory_choices(const RunPlan& plan, const RunModels& models, const Config& config) {
  std::vector<MemoryChoice> choices;
  if (plan.device != Device::cuda) return choices;
  for (const char* recompute : {"none", "selective", "full"})
    for (const bool in_host : {false, true}) {
      Config other = config;
      other.train.recompute.granularity = recompute;
      RunPlan changed = plan;
      changed.optimizer_in_host = in_host;
      const bool same = recompute == config.train.recompute.granularity && in_host == plan.optimizer_in_host;
      if (!same) changed.memory = plan_memory(changed, models, other);
      choices.push_back({recompute, in_host, peak_bytes(changed), host_peak_bytes(changed)});
    }
  return choices;
}

double offload_seconds(const RunPlan& plan) {
  const auto updates = static_cast<double>(plan.batch.updates_per_step * plan.batch.epochs_per_step);
  double seconds = 0;
  const MemoryRow* const trains = row_of(plan, plan.trainer().traits->phase);
  if (plan.optimizer_in_host && trains)
    seconds += updates * static_cast<double>(MemoryRow::bytes_of(trains->host, "optimizer")) / kStateRate;
  for (const RolePlan& role : plan.roles)
    if (const MemoryRow* const row = row_of(plan, role.traits->phase); role.in_host && row)
      seconds += static_cast<double>(MemoryRow::bytes_of(row->device, lent_weights_name(role))) / kCopyRate;
  return seconds;
}

}  // namespace temper
