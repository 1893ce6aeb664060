#include "src/run/local/job_errors.h"

#include <charconv>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>

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

/// The rank that the launcher saw die first, in Open MPI's words.
std::optional<int> rank_noticed(const LauncherEnd& end, int ranks) {
  constexpr std::string_view kBefore = "noticed that process rank ";
  const std::string words = in_one_line(end.text);
  const size_t at = words.find(kBefore);
  int rank = 0;
  if (at == words.npos) return std::nullopt;
  const char* const digits = words.data() + at + kBefore.size();
  const bool read = std::from_chars(digits, words.data() + words.size(), rank).ec == std::errc();
  return read && rank >= 0 && rank < ranks ? std::optional(rank) : std::nullopt;
}

struct WhoDied {
  std::string what, where;
};

/// While ranks join, only the launcher knows of the others: lines tell which of those here it has ended. It
/// may wait for ever for a rank that died while it connected, and say nothing.
WhoDied who_died(const LocalJob& job, const RankLines& lines, const LauncherEnd& end) {
  const std::string host = this_host();
  std::string waited_for;
  for (size_t i = 0; i < lines.ranks().size(); ++i)
    if (!lines.ranks()[i].joined()) waited_for += fmt::format("{}rank {}", waited_for.empty() ? "" : ", ", i);
  std::optional<int> rank = end.first ? std::nullopt : lines.lost();
  if (!waited_for.empty()) {
    rank = rank_noticed(end, job.ranks);
    if (!rank && !end.first)
      return {fmt::format("a rank on host {} died while ranks started", host),
              waited_for + " had not come yet"};
  }
  if (!rank) return {fmt::format("the launcher of the ranks on host {} died", host), "--local"};
  const RankLines::Rank& of = lines.ranks()[static_cast<size_t>(*rank)];
  const std::string log = job.log_of(*rank);
  return {
      fmt::format("rank {} on host {} died", *rank, host),
      fmt::format("rank {}, {}{}", *rank, of.joined() ? fmt::format("pid {}", of.process) : "at its start",
                  log.empty() ? "" : ", its log is " + log)};
}

}  // namespace

void fail_lost(const LocalJob& job, const RankLines& lines, const LauncherEnd& end) {
  const bool saved = job.has_checkpoint();
  const WhoDied who = who_died(job, lines, end);
  fail(saved ? Exit::retry : Exit::internal,
       {.what = who.what,
        .where = who.where,
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
