#include "src/run/local/job_errors.h"

#include <csignal>
#include <cstring>

#include "src/core/check.h"
#include "src/core/process/host.h"

namespace temper {
namespace {

/// Words with single blanks between them, without the lines that launchers draw.
std::string in_one_line(const std::string& text) {
  std::string words;
  for (const char c : text) {
    const bool blank = c == '\n' || c == '\r' || c == ' ' || c == '\t';
    if (c == '-' && (words.empty() || words.back() == ' ' || words.back() == '-')) {
      while (!words.empty() && words.back() == '-') words.pop_back();
      continue;
    }
    if (!blank || (!words.empty() && words.back() != ' ')) words += blank ? ' ' : c;
  }
  return words;
}

/// What it printed, where that is all that is known of a cause.
std::string words_of(const LauncherEnd& end) {
  constexpr size_t kMost = 1000;
  const std::string words = in_one_line(end.text);
  return words.empty() ? "" : "; it says: " + words.substr(0, kMost);
}

std::string cause(const LauncherEnd& end) {
  const int signal = end.code - 128;
  if (signal <= 0 || signal >= NSIG)
    return fmt::format("its process ended without a word; the launcher ended with {}{}", end.code,
                       words_of(end));
  return fmt::format("signal {} ({}) ended its process{}", signal, ::strsignal(signal),
                     signal == SIGKILL ? ": it was killed by hand, or for want of memory (see dmesg)" : "");
}

}  // namespace

void fail_lost(const LocalJob& job, const RankLines& lines, const LauncherEnd& end) {
  const bool saved = job.has_checkpoint();
  const std::optional<int> rank = lines.lost();
  const std::string host = this_host();
  std::string what = fmt::format("the launcher of the ranks on host {} died", host), where = "--local";
  if (rank && !end.first) {
    const std::string log = job.log_of(*rank);
    what = fmt::format("rank {} on host {} died", *rank, host);
    where = fmt::format("rank {}, pid {}", *rank, lines.ranks()[static_cast<size_t>(*rank)].process);
    if (!log.empty()) where += ", its log is " + log;
  }
  fail(saved ? Exit::retry : Exit::internal,
       {.what = what,
        .where = where,
        .why = cause(end),
        .fix = saved ? "start the same command again, it goes on from the newest checkpoint"
                     : "start the same command again; it has no checkpoint to go on from"});
}

void fail_start(const LocalJob& job, const LauncherEnd& end) {
  fail(Exit::environment,
       {.what = "the ranks of --local did not start",
        .where = end.program,
        .why = fmt::format("it ended with {}{}", end.code, words_of(end)),
        .fix = fmt::format("see that `{} -n {} hostname` works; without --local there is one rank",
                           end.program, job.ranks)});
}

}  // namespace temper
