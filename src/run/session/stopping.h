#pragma once
// How a run ends before its last step.

#include "src/run/session/run_steps.h"

namespace temper {

/// Trainer ranks: the run ends with the state after `step`.
void stop_after(RunSteps& run, int64_t step);
/// Ranks beside the trainer's, when the run ends: those with state take part in its last save.
void stop_beside(RunLinks& links, Saver& saver);

}  // namespace temper
