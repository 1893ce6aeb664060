#pragma once
// What ranks sent each other in a step, as metrics.

#include "src/comm/comm.h"
#include "src/run/record/journal.h"
#include "src/train/trainer.h"

namespace temper {

/// perf/comm_bytes/<axis>: of all of `ranks` together, for each axis over which they sent. `updates`: of this
/// rank in the step; `sent`: by it beside them. Each of the ranks calls it.
void record_traffic(Journal& journal, Comm& ranks, std::span<const UpdateStats> updates, AxisBytes sent);

}  // namespace temper
