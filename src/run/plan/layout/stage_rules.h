#pragma once
// The stages of a role and their parts.

#include "src/config/config.h"
#include "src/run/plan/findings.h"
#include "src/run/plan/model_facts.h"

namespace temper {

/// Why a role with these tp and cp cannot have `pp` stages; empty if it can.
std::string pipeline_parallel_defect(const ModelConfig& m, const RolePlan& role, int64_t pp);

/// Absent in the config: the trainer's, where the ranks divide so. With as many stages the roles have the
/// same ones, those of a rollout in one part.
void plan_stages(RolePlan& role, const RolePlan& trainer, const Config& config, const RunModels& models,
                 Findings& found);

}  // namespace temper
