#pragma once
// In which order a pass (models/layer_pass.h) gathers units of which all have shards (ZeRO-3), said to
// the model before it begins, so that the next one may be on its way.

#include "src/models/layer_pass.h"

namespace temper {

void expect_forward(const ModelPart& part);
/// Runs of layers that are computed again are gathered once more in between.
void expect_backward(const ModelPart& part, const RecomputePlan& recompute);

}  // namespace temper
