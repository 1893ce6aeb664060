#pragma once
// `temper serve`: a model behind the protocols that clients of language models speak.

#include "src/run/verbs/command_line.h"

namespace temper {

/// Until SIGTERM or SIGINT: what is asked for then is still answered, for a minute at most.
int run_serve(const CommandLine& line);

}  // namespace temper
