#pragma once
// How a run ends before its last step.

#include "src/run/session/run_steps.h"

namespace temper {

/// Trainer ranks: the run ends with the state after `step`.
void stop_after(RunSteps& run, int64_t step);
/// Trainer ranks: run.stop_when is met, the run is over with the state after `step`.
void end_at_goal(RunSteps& run, int64_t step);
/// The same on all ranks, at a start of a run that was over: nothing is saved again.
void end_again(RunLinks& links);
/// All ranks, at the end: whether the run is over, at its last step or by run.stop_when; its event, and what
/// a tracker lacks of it. `stopped`: this rank has not come to the last step.
bool is_finished(RunLinks& links, const RunRank& rank, bool stopped);
/// Ranks beside the trainer's, when the run ends: those with state take part in its last save.
void stop_beside(RunLinks& links, Saver& saver);

}  // namespace temper
