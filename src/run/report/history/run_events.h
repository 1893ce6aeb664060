#pragma once
// Starts and stops of a run, as events.jsonl has them, and what went wrong, as the logs of its ranks have it.

#include <string>

#include "src/run/report/history/run_history.h"

namespace temper {

/// A line of events.jsonl. Nothing where it cannot be read, and where it is about a checkpoint, an export or
/// anything else that is no start and no stop.
std::optional<RunEvent> event_of(const std::string& line);

/// What a line about a start says of it; a line about anything else, or one that cannot be read, changes
/// nothing.
void take_start(const std::string& line, RunHistory& run);

/// A line of a log: "2026-11-23T01:12:22.069 rank 0 warning MESSAGE". Nothing where it is of a lower level.
std::optional<RunEvent> trouble_of(const std::string& line);

/// Fills the events of a run whose folder is known, in order of time; of very many the first and the last.
void read_events(RunHistory& run);

}  // namespace temper
