#pragma once
// The verb `train`: every rank runs the same program over the same config.

#include "src/run/verbs/command_line.h"

namespace temper {

int run_train(const CommandLine& line);

}  // namespace temper
