#pragma once
// The batch arithmetic: prompts, samples, updates. The only place where these numbers divide each other.
//
//   samples_per_step = prompts_per_step x samples_per_prompt
//   updates_per_step = samples_per_step / samples_per_update        (or the other way round)
//   updates_total    = steps x updates_per_step x epochs_per_step

#include "src/run/plan/plan.h"

namespace temper {

/// Zeros where an error made a number unknown; errors are added.
BatchPlan plan_batch(const Config& config, std::vector<PlanError>& errors);

/// The largest divisor of n that is <= x and the smallest that is >= x, where there are such.
std::vector<int64_t> nearest_divisors(int64_t n, int64_t x);

}  // namespace temper
