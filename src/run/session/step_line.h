#pragma once
// The line that a step leaves in metrics.jsonl, and on the terminal.

#include "src/run/session/run_steps.h"

namespace temper {

/// Trainer ranks: the step, which took `seconds`, is trained and validated; what it leaves is decided.
void finish_step(RunSteps& run, int64_t step, double seconds);
/// Trainer ranks, at the start: the validation of the step that the run goes on from is to be made, as a stop
/// cut it, or as it is the one before the first step: it is made, and the step has its line. False: cut
/// (again).
bool finish_begun_step(RunSteps& run);

}  // namespace temper
