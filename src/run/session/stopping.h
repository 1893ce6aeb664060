#pragma once
// How a run ends before its last step.

#include "src/run/session/run_rank.h"

namespace temper {

/// Trainer ranks: the run ends with the state after `step`.
void stop_after(RunRank& rank, int64_t step);
/// A rank without roles passes on what it is asked, and waits. True when the run was stopped.
bool wait_for_end(RunRank& rank);

}  // namespace temper
