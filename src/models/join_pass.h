#pragma once
// What is done without a micro-batch while others make the steps of one with weights that all have shards
// of (ZeRO-3): in the order of pass_order.h it takes part in their gathers and in the sums of gradients.

#include "src/models/pass_order.h"

namespace temper {

/// The forward of a part.
void join_forward(Ctx& c, const ModelPart& part);
/// A step of the schedule; the last layers have their forward with their backward. Gradients are zeros.
void join_pass(Ctx& c, Model& model, const LayerRange& layers, const RecomputePlan& recompute, bool backward,
               LayerWatcher& watcher);

}  // namespace temper
