#pragma once
// The verb `check`: reads a config and the model's config.json, plans for N ranks, prints what would happen.
// Needs no MPI and no GPU, and starts nothing but the programs of rewards, once each.

#include <string>

#include "src/run/plan/plan.h"
#include "src/run/verbs/command_line.h"

namespace temper {

struct CheckOutcome {
  std::string output;  // for stdout: the screen, tables that are asked for, or JSON
  std::string errors;  // for stderr: a block for each
  int exit_code = 0;   // 0; 64 when the config has errors, 65 when what it names has some
};
CheckOutcome check_outcome(const CommandLine& line);
int run_check(const CommandLine& line);

}  // namespace temper
