#pragma once
// Roles with state beside the trainer: they learn a step when the trainer has trained it, and stand where it
// stands when it saves.

#include "src/run/session/run_rank.h"

namespace temper {

/// Ranks of roles that learn, once the trainer has trained the step.
void learn(RunRank& rank, int64_t step);
/// Every rank, after its roles: where it has state and no trainer role it learns the step when that is
/// trained, and saves when the trainer does. False: the run ends.
bool follow_trainer(RunRank& rank, int64_t step);
/// Ranks beside the trainer's, when the run ends: those with state take part in its last save.
void stop_beside(RunRank& rank);

}  // namespace temper
