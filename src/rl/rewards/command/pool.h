#pragma once
// The programs of a command reward and the thread that talks to them. Programs start when there is work for
// them; one that is late, has ended or talks nonsense is killed, and another takes its place. A call is late
// limit_seconds after it was written to its program. With several calls open at a program, a late one alone
// has no answer and the others are asked again; death and nonsense are held against all of them.
// A step waits once: when a call of a step was late, the other calls of it have no more time than three times
// the longest answer so far (of a program that just started, of one that did not; at least kLeastStart and
// kLeastAnswer), and after kMostInRow late ones a program without any answer between them the rest of the
// step is not asked: a program that hangs now and then, or always, holds a step up for about limit_seconds.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "src/rl/rewards/command/process.h"

namespace temper {

struct CommandOptions {
  std::vector<std::string> argv;
  int64_t workers = 1, in_flight = 1;  // programs, and calls that are open at one of them
  double limit_seconds = 10;
};

/// Calls of a step; `late`, `died` and `nonsense` have no answer. `restarts`: programs that took another's
/// place.
struct CommandCounts {
  int64_t calls = 0, late = 0, died = 0, nonsense = 0, restarts = 0;
};

class CommandPool {
 public:
  static constexpr double kLeastStart = 0.25, kLeastAnswer = 0.1;  // seconds
  static constexpr int64_t kMostInRow = 4;

  CommandPool(Helpers& helpers, CommandOptions options);
  ~CommandPool();
  CommandPool(const CommandPool&) = delete;
  CommandPool& operator=(const CommandPool&) = delete;

  /// Waits for the answer to a request, to which "id" is added. From any thread. Throws what Helpers::start
  /// throws; Abandoned after `abandon`.
  CommandAnswer ask(Json request);
  /// Ends the programs that work at a call.
  void abandon();
  /// The counts of the step that ends with this call.
  CommandCounts end_step();

 private:
  void work();
  bool hand_out();
  void give_up();
  void give(CommandProcess& process);
  CommandProcess* find_place();
  void wait_for_programs();
  void drop_late(CommandProcess& process);
  void drop(CommandProcess& process, CommandFailure failure, const std::string& why);
  void fail_call(CommandCall& call, CommandFailure failure, const std::string& why);
  void fail_queue();
  static double age(const CommandProcess::OpenCall& call);
  double allowed_seconds(const CommandProcess::OpenCall& call) const;
  void wake() const;

  Helpers& helpers_;
  const CommandOptions options_;
  int wake_ = -1;  // eventfd
  std::mutex mutex_;
  // Under the mutex.
  std::deque<std::shared_ptr<CommandCall>> queue_;
  CommandCounts counts_;
  bool stop_ = false, abandoned_ = false;
  // What belongs to the thread.
  std::vector<std::unique_ptr<CommandProcess>> processes_;
  int64_t started_ = 0;
  std::mt19937_64 ids_;
  double longest_answer_ = 0, longest_start_ = 0;
  int64_t failures_told_ = 0;
  std::atomic<bool> late_in_step_ = false;  // set before anybody hears of the late call
  std::atomic<int64_t> late_in_row_ = 0;    // of the step
  std::thread thread_;
};

}  // namespace temper
