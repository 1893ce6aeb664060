#pragma once
// The verb `eval`: validation alone, over all ranks.

#include "src/run/verbs/command_line.h"

namespace temper {

int run_eval(const CommandLine& line);

}  // namespace temper
