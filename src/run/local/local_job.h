#pragma once
// `--local N`: this process stays the parent of a launcher (mpirun) and of the N ranks that it starts on this
// host. To the user it is the program itself: ranks have its stdin, stdout and stderr, and of the launcher
// nothing is seen. Each signal that would stop the program goes on to the ranks as SIGUSR1, which saves where
// there is anything to save; the end has the code that the program would have. However it ends, nothing that
// it started goes on, and a terminal is as it was.

#include <functional>
#include <string>
#include <vector>

namespace temper {

struct LocalJob {
  int ranks = 1;
  std::vector<std::string> command;  // the program's path, and its words
  bool reads_stdin = false;          // rank 0 does
  /// After a rank was lost: the same command can go on from where it was saved.
  std::function<bool()> has_checkpoint = [] { return false; };
  /// The log of a rank; empty: it has none.
  std::function<std::string(int rank)> log_of = [](int) { return std::string(); };
};

/// The exit code: that of the ranks; 128 + N where signal N came before there was anything to save, or as a
/// second one 2 s after the first or later. Thrown: Exit::retry or Exit::internal after a rank was lost that
/// no other rank has reported, with and without a checkpoint; Exit::environment where no rank comes up.
int run_local_job(const LocalJob& job);

}  // namespace temper
