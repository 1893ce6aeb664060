#pragma once
// The verbs `train` and `eval`: every rank runs the same program over the same config.

#include "src/run/command_line.h"

namespace temper {

int run_train(const CommandLine& line);
int run_eval(const CommandLine& line);

}  // namespace temper
