#pragma once
// The verbs that run a model folder outside of a run. Results go to stdout as JSON lines in input order;
// under mpirun the ranks share the work and rank 0 prints.

#include "src/run/verbs/command_line.h"

namespace temper {

int run_generate(const CommandLine& line);
int run_score(const CommandLine& line);

}  // namespace temper
