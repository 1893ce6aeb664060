#pragma once
// How long the steps of a run took lately, as its folder says.

#include <optional>

#include "src/run/plan/report/step_time.h"

namespace temper {

/// The median of the last steps in metrics.jsonl of this config's run; nothing where there are none.
std::optional<StepTime> run_pace(const Config& config);

}  // namespace temper
