#pragma once
// What the ranks of a role send each other over each axis in a step, counted by the code that sends it
// (run/plan/dry_run.h).

#include "src/run/plan/plan.h"

namespace temper {

/// What the ranks of each role send in a step whose samples all have the full length. The trainer's is what
/// the updates of such a step count in perf/comm_bytes/<axis>; each row of the rollout is computed once, and
/// what draws tokens is taken for what log-probs take. Roles whose ranks send nothing are left out.
std::vector<RoleTraffic> axis_traffic(const RunPlan& plan, const RunModels& models, const Config& config);

/// Warnings that ranks which share a model are on several nodes of `ranks_per_node`, with what they send a
/// step; one line for each such role.
std::vector<std::string> node_warnings(const RunPlan& plan, const std::vector<RoleTraffic>& traffic,
                                       int ranks_per_node);

}  // namespace temper
