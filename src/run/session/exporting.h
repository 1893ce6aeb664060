#pragma once
// Exports of the policy as a Hugging Face folder (checkpoint.export_hf_every).

#include "src/run/session/run_rank.h"

namespace temper {

/// By checkpoint.export_hf_every, where the run ends with this step or goes on.
bool export_is_due(const RunTask& task, int64_t step, bool ends);
/// Trainer ranks: the policy's weights as they are now.
void export_step(RunRank& rank, int64_t step);
/// The export of a step that is no longer one of the best, unless it is due by checkpoint.export_hf_every.
void remove_export(const RunRank& rank, int64_t step);
/// Trainer ranks, at the start: a step leaves its export after its checkpoint, a run that ended in between
/// owes it.
void export_what_is_owed(RunRank& rank);

}  // namespace temper
