#pragma once
// Starts and stops of a run, as the logs of its ranks have them.

#include <string>

#include "src/run/report/run_history.h"

namespace temper {

/// Of a line of a log: "2026-11-23T01:12:22.069 rank 0 info MESSAGE". Nothing where it is about a step, a
/// sample, or anything else that runs say all the time.
std::optional<RunEvent> event_of(const std::string& line);

/// Fills the events, in order of time; of very many the first and the last.
void read_events(const std::string& folder, RunHistory& run);

}  // namespace temper
