#pragma once
// The verbs that read or write folders (tokenizer, model, checkpoint) and run no model. Results go to stdout,
// as JSON lines in input order.

#include "src/run/verbs/command_line.h"

namespace temper {

int run_tokenize(const CommandLine& line);
int run_init(const CommandLine& line);
int run_export(const CommandLine& line);
int run_verify(const CommandLine& line);

}  // namespace temper
