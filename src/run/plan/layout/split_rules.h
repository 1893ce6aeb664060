#pragma once
// How many ranks of a role share its layers (tp) and the tokens of a sequence (cp).

#include "src/config/config.h"
#include "src/run/plan/findings.h"
#include "src/run/plan/model_facts.h"

namespace temper {

/// Ranks along tp or cp. Absent in the config: as many as the trainer has. `roles`: all of the run, whose
/// keys a legal number suits, too.
void plan_splits(RolePlan& role, Axis axis, const Config& config, const RunModels& models,
                 const std::vector<RolePlan>& roles, Findings& found);

}  // namespace temper
