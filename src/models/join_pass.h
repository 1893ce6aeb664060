#pragma once
// What is done without a micro-batch while others make the steps of one with weights that all have shards
// of (ZeRO-3), or with experts that are spread over them: in the order of pass_order.h it takes part in their
// gathers, in the exchanges of experts, for which it works on the tokens of others, and in the sums of
// gradients.

#include "src/models/pass_order.h"

namespace temper {

/// The forward of a part.
void join_forward(Ctx& c, const ModelPart& part);
/// A step of the schedule; the last layers have their forward with their backward. To the gradients comes
/// what experts have of the tokens of others. `watcher` may be null.
void join_pass(Ctx& c, Model& model, const LayerRange& layers, const RecomputePlan& recompute, bool backward,
               LayerWatcher* watcher);

}  // namespace temper
