#pragma once
// The parts of the page that are drawn.

#include <string>
#include <vector>

#include "src/run/report/history/run_history.h"

namespace temper {

/// A coloured square and the name of a run.
std::string run_label(const std::vector<RunHistory>& runs, size_t run);

/// Every metric of any run as a chart, by groups.
std::string metric_sections(const std::vector<RunHistory>& runs);

/// What a step's time went into, a chart and a table for each run.
std::string phase_section(const std::vector<RunHistory>& runs);

}  // namespace temper
