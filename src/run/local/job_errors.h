#pragma once
// The errors of a job of `--local` that none of its ranks has reported.

#include <string>

#include "src/run/local/local_job.h"
#include "src/run/local/rank_lines.h"

namespace temper {

/// How a launcher ended, and what it has printed.
struct LauncherEnd {
  std::string program;
  int code = 0;        // 128 + N where signal N ended the first rank that ended
  bool first = false;  // before any rank
  std::string text;
};

/// A rank, or the launcher, has ended without a word: Exit::retry where the job can go on from a checkpoint,
/// else Exit::internal.
[[noreturn]] void fail_lost(const LocalJob& job, const RankLines& lines, const LauncherEnd& end);

/// No rank has come: Exit::environment with what the launcher has printed.
[[noreturn]] void fail_start(const LocalJob& job, const LauncherEnd& end);

}  // namespace temper
