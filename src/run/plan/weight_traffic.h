#pragma once
// What one version of the weights sends from trainer ranks to ranks that generate with buffers of their own.

#include "src/run/plan/plan.h"

namespace temper {

WeightTraffic weight_traffic(const RunPlan& plan, const ModelConfig& model);

}  // namespace temper
