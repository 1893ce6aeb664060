#pragma once
// What was planned for a rank that gets no memory.

#include <string>

#include "src/run/plan/plan.h"

namespace temper {

/// What the plan counts for this rank in a phase of that name (in its largest one, where there is none), a
/// part a line.
std::string planned_parts(const RunPlan& plan, int rank, std::string_view phase);

}  // namespace temper
