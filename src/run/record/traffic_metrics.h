#pragma once
// What ranks sent each other in a step, as metrics.

#include "src/comm/collectives.h"
#include "src/comm/comm.h"
#include "src/run/record/journal.h"

namespace temper {

/// perf/comm_bytes/<axis>: of all of `ranks` together, for each axis over which they sent. `sent`: by this
/// rank in the step; each of them calls it.
void record_traffic(Journal& journal, Comm& ranks, const AxisBytes& sent);

}  // namespace temper
