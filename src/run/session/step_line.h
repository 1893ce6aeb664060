#pragma once
// The line that a step leaves in metrics.jsonl, and on the terminal.

#include "src/run/session/run_rank.h"

namespace temper {

/// Trainer ranks: the step, which took `seconds`, is trained and validated.
void finish_step(RunRank& rank, int64_t step, double seconds);
/// A stop cut the validation of the step that the run goes on from: it is made, and the step has its line.
/// False: cut again, and saved.
bool finish_begun_step(RunRank& rank);

}  // namespace temper
