#pragma once
// Roles with state beside the trainer: they learn a step when the trainer has trained it, and stand where it
// stands when it saves.

#include "src/run/session/run_steps.h"

namespace temper {

/// Ranks of roles that learn, once the trainer has trained the step.
void learn(RunSteps& run, int64_t step);
/// Every rank, after its roles: where it has state and no trainer role it learns the step when that is
/// trained, and saves when the trainer does. False: the run ends.
bool follow_trainer(RunSteps& run, int64_t step);

}  // namespace temper
