#pragma once
// The verb `report`: a page, and a table of metrics, about runs that are over or under way.

#include "src/run/verbs/command_line.h"

namespace temper {

int run_report(const CommandLine& line);

/// report.html of a run that ends or stops, into its folder. The run is what counts: where no page can be
/// made that is a warning.
void write_page_of_run(const std::string& folder);

}  // namespace temper
