#pragma once
// What `temper check` shows: the plan as text (each line of the batch arithmetic with its formula, who does
// what, memory per rank and phase) and as the JSON of the contract.

#include "src/run/plan/plan.h"

namespace temper {

struct ReportOptions {
  int ranks_per_node = 0;      // 0: nodes are not shown
  int64_t memory_limit = 0;    // bytes per rank, 0: not given
  bool explain_batch = false;  // with the names other trainers use
};

/// Errors and warnings, then the plan (only where there are no errors).
std::string plan_text(const PlanResult& result, const ReportOptions& options);

/// {"ok", "errors", "warnings", "batch", "roles", "memory", "lengths", ...}; parts that errors leave unknown
/// are empty.
Json plan_json(const PlanResult& result, const ReportOptions& options);

}  // namespace temper
