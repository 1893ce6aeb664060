#pragma once
// The verb `report`: a page, and a table of metrics, about runs that are over or under way.

#include "src/run/verbs/command_line.h"

namespace temper {

int run_report(const CommandLine& line);

}  // namespace temper
