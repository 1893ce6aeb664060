#pragma once
// The verbs that work on a model folder, a tokenizer or a checkpoint, outside of a run. Results go to stdout
// as JSON lines in input order; under mpirun the ranks share the work and rank 0 prints.

#include "src/run/verbs/command_line.h"

namespace temper {

int run_generate(const CommandLine& line);
int run_score(const CommandLine& line);
int run_tokenize(const CommandLine& line);
int run_init(const CommandLine& line);
int run_export(const CommandLine& line);
int run_verify(const CommandLine& line);

}  // namespace temper
