#pragma once
// The state of a run: how it comes back at the start, and what a step leaves.

#include "src/run/session/run_rank.h"

namespace temper {

/// Roles get what the checkpoint holds, if there is one; then the run folder is made to fit its step,
/// and gets the export of that step where one is due and missing.
void start_run(RunRank& rank);

/// What save_step will do after this step.
struct Saves {
  bool checkpoint = false, exported = false;
};
Saves saves_after(const RunRank& rank, int64_t step);

/// Trainer ranks, after each step: a checkpoint and an export where they are due.
void save_step(RunRank& rank, int64_t step);
/// Trainer ranks: a checkpoint of the state after `step`, which is the last one that was trained.
void save_stopped(RunRank& rank, int64_t step);

}  // namespace temper
