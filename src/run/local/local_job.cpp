#include "src/run/local/local_job.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>

#include "src/core/process/stop_signal.h"
#include "src/core/stopwatch.h"
#include "src/run/local/child.h"
#include "src/run/local/job_errors.h"
#include "src/run/local/job_folder.h"
#include "src/run/local/launcher_program.h"
#include "src/run/local/own_children.h"
#include "src/run/local/rank_lines.h"
#include "src/run/local/stdin_relay.h"
#include "src/run/local/taken_signals.h"
#include "src/run/local/terminal_state.h"

namespace temper {
namespace {

constexpr double kSecondSignal = 2;  // seconds; one that comes earlier belongs to the first
/// Other ranks get so long after one has failed or died: to say what they know, or what they have found, too.
constexpr double kLastWords = 1;
/// The launcher gets so long when no rank is left: it would not end for seconds after a code that is not 0,
/// and its own code is of use only where no rank has told one.
constexpr double kLauncherSeconds = 0.2, kLauncherCodeSeconds = 3;
constexpr int kTick = 50;  // milliseconds
constexpr size_t kMostText = 8192;

/// Since something has come to pass; not yet: never.
class Since {
 public:
  void note() {
    if (!at_) at_.emplace();
  }
  bool longer_than(double seconds) const { return at_ && at_->seconds() > seconds; }
  explicit operator bool() const { return at_.has_value(); }

 private:
  std::optional<Stopwatch> at_;
};

class Job {
 public:
  explicit Job(const LocalJob& job) : job_(job), folder_(job.ranks), lines_(job.ranks, input_.reads()) {
    launcher_path_ = find_launcher();
    launcher_ = start_child(launcher_path_, launcher_words(launcher_path_, job.ranks, job.command),
                            launcher_environment(folder_.path(), folder_.messages(), lines_.name()));
  }
  ~Job() {
    leave_nobody();
    ::close(launcher_.output);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int run() {
    while (!over()) {
      wait();
      lines_.look();
      if (lines_.ranks().front().joined()) input_.close_reads();
      input_.look();
      take_signals();
      listen_ = listen_ && read_child(launcher_, text_, kMostText);
      if (launcher_code_ < 0) launcher_code_ = ended_child(launcher_);
      decide();
    }
    leave_nobody();
    if (listen_) read_child(launcher_, text_, kMostText);  // its last words
    return code();
  }

 private:
  bool over() const { return ended_by_ != 0 || (launcher_code_ >= 0 && !lines_.any_runs()); }

  void wait() const {
    std::vector<pollfd> wanted{{signals_.descriptor(), POLLIN, 0}};
    if (listen_) wanted.push_back({launcher_.output, POLLIN, 0});
    lines_.add_to(wanted);
    input_.add_to(wanted);
    ::poll(wanted.data(), wanted.size(), kTick);
  }

  void take_signals() {
    while (const std::optional<int> signal = signals_.next()) {
      if (*signal == SIGTSTP)
        stand_still();
      else if (*signal != SIGCHLD)
        ask(*signal);
    }
  }

  /// Control-Z: the ranks are in other groups.
  void stand_still() const {
    lines_.kill(SIGSTOP);
    ::raise(SIGSTOP);
    lines_.kill(SIGCONT);
  }

  void ask(int signal) {
    lines_.look();  // what was said before the signal came
    if (lines_.all_done()) return;
    if (asked_.longer_than(kSecondSignal)) ended_by_ = signal;
    if (asked_) return;
    asked_.note();
    // No rank begins anything that could be saved before all have said so.
    if (lines_.all_ask()) return lines_.hand_on(signal);
    ended_by_ = signal;
    terminal_.clear_line();
    tell_end_by(signal);
  }

  void decide() {
    launcher_first_ = launcher_first_ || (launcher_code_ >= 0 && lines_.any_runs() && !failing_);
    if (lines_.failed() || lines_.lost() || launcher_code_ >= 0) failing_.note();
    if (failing_.longer_than(launcher_first_ ? 0 : kLastWords)) lines_.kill(SIGKILL);
    if ((lines_.all_joined() || failing_.longer_than(kLastWords)) && !lines_.any_runs()) ranks_gone_.note();
    const bool told = lines_.failed() || lines_.all_done();
    if (launcher_code_ < 0 && ranks_gone_.longer_than(told ? kLauncherSeconds : kLauncherCodeSeconds))
      ::kill(-launcher_.pid, SIGKILL);
  }

  void leave_nobody() {
    if (ended_by_ != 0 || lines_.any_runs()) terminal_.clear_line();
    lines_.kill(SIGKILL);
    if (children_.end(launcher_.pid)) launcher_code_ = 128 + SIGKILL;
  }

  int code() const {
    if (ended_by_ != 0) return 128 + ended_by_;
    if (lines_.failed()) return *lines_.failed();
    if (lines_.all_done()) {
      int largest = 0;
      for (const RankLines::Rank& rank : lines_.ranks()) largest = std::max(largest, *rank.done);
      return largest;
    }
    // As without --local: what reads stdout has gone, and a verb that only has results ends.
    if (launcher_code_ == 128 + SIGPIPE) return launcher_code_;
    const LauncherEnd end{launcher_path_, launcher_code_, launcher_first_, text_};
    if (lines_.any_joined()) fail_lost(job_, lines_, end);
    fail_start(job_, end);
  }

  const LocalJob& job_;
  const TerminalState terminal_;
  const OwnChildren children_;
  const TakenSignals signals_;
  const JobFolder folder_;
  StdinRelay input_{job_.reads_stdin ? STDIN_FILENO : -1};
  RankLines lines_;
  std::string launcher_path_;
  Child launcher_;
  bool listen_ = true;
  std::string text_;             // of the launcher
  int launcher_code_ = -1;       // it runs
  bool launcher_first_ = false;  // it has ended before any rank
  int ended_by_ = 0;             // the signal after which all is ended at once
  Since asked_, failing_, ranks_gone_;
};

}  // namespace

int run_local_job(const LocalJob& job) { return Job(job).run(); }

}  // namespace temper
