#pragma once
// How long a step takes, where that is known before it runs.

#include <optional>
#include <string>

#include "src/run/plan/plan.h"

namespace temper {

/// Seconds of a step, and how they are known, in words.
struct StepTime {
  double seconds = 0;
  std::string from;
};

/// The time of a step whose samples all have the full length, on GPUs that hold a whole model each, at rates
/// measured on one of them (tests/bench/RESULTS.md):
///   train     6 x parameters x tokens x epochs_per_step / (share of peak x 989e12), with full recomputation
///   8 x reference 2 x parameters x tokens / (0.6 x 989e12) generate  for each token of a response (weights +
///   keys and values) / read rate + 45 us x layers
/// and what is offloaded (run/plan/memory/memory_choices.h). `device_bytes`: memory of the GPU, which tells the
/// card. Nothing for what was not measured: other cards, types, models below 0.5 or above 10 billion
/// parameters, shared models, more than 4 GPUs, roles apart.
std::optional<StepTime> gpu_step_time(const RunPlan& plan, const ModelConfig& model, const Config& config,
                                      int64_t device_bytes);

}  // namespace temper
