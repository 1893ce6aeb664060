#pragma once
// The steps that a checkpoint holds beyond its own: generated, not trained. The last may be open: a stop cut
// it.

#include "src/run/roles/role.h"

namespace temper {

/// The finished groups of a step as the checkpoint holds it: ahead_name, or open_name of one that was cut.
StepInput read_ahead(const CheckpointReader& checkpoint, const std::string& name);

/// The run that made the checkpoint had no role that says these log-probs, this one does: it says what is
/// missing when it takes up the checkpoint.
bool lacks_scores(const StepInput& input, std::vector<double> Trajectory::*logprobs);

/// Ranks with whole steps, after GroupExchange::start: takes those of the checkpoint, and what the last one
/// left unfinished.
void put_back_steps(const CheckpointReader& checkpoint, const RunPlan& plan, GroupExchange& groups);

}  // namespace temper
