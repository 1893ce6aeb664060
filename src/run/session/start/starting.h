#pragma once
// How the state of a run comes back at its start.

#include "src/run/session/run_rank.h"

namespace temper {

/// Ranks with roles: roles get what the checkpoint holds, if there is one; then the run folder is made to fit
/// its step, and gets the export of that step where one is due and missing; the weights of the step go out.
void start_run(RunRank& rank);

}  // namespace temper
