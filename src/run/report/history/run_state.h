#pragma once
// How it goes with a run: what its events say last, and whether its owner is alive.

#include "src/run/report/history/run_history.h"

namespace temper {

/// From the events, the metrics and the owner that the folder names. A process of another machine cannot be
/// looked at: a run there that has written nothing for an hour is taken for silent.
RunState run_state(const RunHistory& run);

/// "running", "ended", ...
const char* run_state_name(RunState state);

}  // namespace temper
