#pragma once
// The state of a run: how it comes back at the start, and what a step leaves.

#include "src/run/session/run_rank.h"

namespace temper {

/// Roles get what the checkpoint holds, if there is one; then the run folder is made to fit its step,
/// and gets the export of that step where one is due and missing.
void start_run(RunRank& rank);

/// Trainer ranks, when the step is trained: sets RunRank::saves, and tells others that have state. Saves by
/// the clock (checkpoint.every_minutes) are optional: the first trainer rank decides, before the step's line.
void decide_saves(RunRank& rank, int64_t step);

/// Trainer ranks, after each step: the checkpoint and the export of RunRank::saves.
void save_step(RunRank& rank, int64_t step);
/// Trainer ranks: a checkpoint of the state after `step`, which is the last one that was trained.
void save_stopped(RunRank& rank, int64_t step);
/// Ranks with state beside the trainer's: their part of a checkpoint; `produced`: the last step that is
/// generated.
void save_beside(RunRank& rank, int64_t step, int64_t produced, Saving saving);

}  // namespace temper
