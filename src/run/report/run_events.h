#pragma once
// Starts and stops of a run, as events.jsonl has them, and what went wrong, as the logs of its ranks have it.

#include <string>

#include "src/run/report/run_history.h"

namespace temper {

/// A line of events.jsonl. Nothing where it cannot be read, and where it is about a checkpoint, an export or
/// anything else that is no start and no stop.
std::optional<RunEvent> event_of(const std::string& line);

/// A line of a log: "2026-11-23T01:12:22.069 rank 0 warning MESSAGE". Nothing where it is of a lower level.
std::optional<RunEvent> trouble_of(const std::string& line);

/// Fills the events, in order of time; of very many the first and the last.
void read_events(const std::string& folder, RunHistory& run);

}  // namespace temper
