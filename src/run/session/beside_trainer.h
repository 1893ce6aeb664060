#pragma once
// Roles with state beside the trainer: they learn a step when the trainer has trained it, and stand where it
// stands when it saves.

#include "src/run/session/run_steps.h"

namespace temper {

/// Trainer ranks, when the step is trained, and validated or not: what it leaves is decided, and known to
/// those who learn from it, who do.
void close_training(RunSteps& run, int64_t step);
/// Every rank, after its roles: where it has state and no trainer role it learns the step when that is
/// trained, and saves when the trainer does. False: the run ends.
bool follow_trainer(RunSteps& run, int64_t step);

}  // namespace temper
