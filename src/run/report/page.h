#pragma once
// The page about one or several runs: one HTML file without scripts, which asks nothing of the network.

#include <string>
#include <vector>

#include "src/run/report/history/run_history.h"

namespace temper {

/// The page about at most kMaxRuns runs (src/run/report/chart.h).
std::string report_page(const std::vector<RunHistory>& runs);

}  // namespace temper
