#pragma once
// The steps that a checkpoint holds beyond its own: generated, not trained.

#include "src/run/roles/role.h"

namespace temper {

/// A step as the checkpoint holds it.
StepInput read_ahead(const CheckpointReader& checkpoint, int64_t step);

/// The run that made the checkpoint kept no reference policy, this one does: its role says what is missing
/// when it takes up the checkpoint.
bool lacks_reference(const StepInput& input, const RunPlan& plan);

}  // namespace temper
