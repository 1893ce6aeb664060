#pragma once
// `--local N` of train, eval, generate and score.

#include "src/run/verbs/command_line.h"

namespace temper {

/// Starts the same command on N ranks of this host (run/local/local_job.h) and returns its exit code; 1 is
/// this process. Exit::usage under a launcher, for a config that is wrong, and for a run of more ranks than
/// GPUs; all before anything is started.
int run_locally(const CommandLine& line, int argc, const char* const* argv);

/// The words without `--local N`: what each rank is asked.
std::vector<std::string> words_of_rank(int argc, const char* const* argv);

}  // namespace temper
