#pragma once
// The plan as the JSON of the contract (`temper check --json`).

#include "src/run/plan/report/tables.h"

namespace temper {

/// {"ok", "errors", "warnings", "batch", "roles", "memory", "lengths", ...}; parts that errors leave unknown
/// are empty.
Json plan_json(const PlanResult& result, const ReportOptions& options);

}  // namespace temper
