#pragma once
// The parts of the page that are text and tables.

#include <string>
#include <vector>

#include "src/run/report/history/run_history.h"

namespace temper {

/// What could not be read.
std::string notes_html(const std::vector<RunHistory>& runs);
std::string sample_section(const std::vector<RunHistory>& runs);
/// Starts, stops, warnings and errors.
std::string event_section(const std::vector<RunHistory>& runs);
/// What differs between runs, what changed over the starts of a run, and all of it.
std::string config_section(const std::vector<RunHistory>& runs);

}  // namespace temper
