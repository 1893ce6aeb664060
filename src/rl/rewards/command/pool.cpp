#include "src/rl/rewards/command/pool.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/core/log.h"
#include "src/core/process/progress.h"
#include "src/core/threads/quiet_thread.h"

namespace temper {
namespace {

constexpr int64_t kWarningsPerStep = 5;
constexpr double kMostBetweenNotes = 0.5;

const char* name_of(CommandFailure failure) {
  return failure == CommandFailure::late   ? "is late"
         : failure == CommandFailure::died ? "has ended"
                                           : "talks nonsense";
}

}  // namespace

CommandPool::CommandPool(Helpers& helpers, CommandOptions options)
    : helpers_(helpers),
      options_(std::move(options)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ids_(std::random_device()()) {
  CHECK(wake_ >= 0, "no eventfd");
  CHECK(options_.workers > 0 && options_.in_flight > 0, "{} programs with {} calls each", options_.workers,
        options_.in_flight);
  thread_ = quiet_thread([this] { work(); });  // a pipe whose reader has died answers with an error there
}

CommandPool::~CommandPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake();
  thread_.join();
  for (const auto& process : processes_) helpers_.end(process->program);
  ::close(wake_);
}

void CommandPool::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t wrote = ::write(wake_, &one, sizeof one);  // full: it is awake
}

CommandAnswer CommandPool::ask(Json request) {
  const auto call = std::make_shared<CommandCall>();
  call->request = std::move(request);
  std::future<CommandAnswer> answer = call->answer.get_future();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(call);
    ++counts_.calls;
  }
  wake();
  return answer.get();
}

void CommandPool::abandon() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  wake();
}

CommandCounts CommandPool::end_step() {
  const std::lock_guard lock(mutex_);
  late_in_step_ = false;
  late_in_row_ = 0;
  failures_told_ = 0;
  return std::exchange(counts_, {});
}

void CommandPool::work() {
  while (hand_out()) {
    wait_for_programs();
    std::vector<CommandProcess*> all;  // dropping one takes it off the list
    for (const auto& process : processes_) all.push_back(process.get());
    for (CommandProcess* process : all) {
      process->write();
      const size_t open = process->open.size();
      const bool sound = process->read();
      if (process->open.size() < open) late_in_row_ = 0;
      longest_answer_ = std::max(longest_answer_, process->longest_answer);
      longest_start_ = std::max(longest_start_, process->longest_start);
      if (sound)
        drop_late(*process);
      else
        drop(*process, process->failure, process->why);
    }
  }
}

/// Gives up all calls that wait for an answer.
void CommandPool::give_up() {
  const auto abandoned = std::make_exception_ptr(Abandoned());
  for (const auto& process : processes_) {
    for (const auto& [id, call] : process->open) call.call->answer.set_exception(abandoned);
    helpers_.end(process->program);
  }
  processes_.clear();
  for (const auto& call : queue_) call->answer.set_exception(abandoned);
  queue_.clear();
}

/// Gives waiting calls to programs. False: it is time to leave.
bool CommandPool::hand_out() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (abandoned_) give_up();
      if (stop_) return false;
      if (queue_.empty()) return true;
    }
    if (late_in_row_ >= kMostInRow * options_.workers) {
      fail_queue();
      return true;
    }
    CommandProcess* place = nullptr;
    try {
      place = find_place();
    } catch (...) {  // goes to those who wait for answers
      const std::lock_guard lock(mutex_);
      for (const auto& call : queue_) call->answer.set_exception(std::current_exception());
      queue_.clear();
    }
    if (!place) return true;
    give(*place);
  }
}

/// Nobody answers: the rest of the step is late without being asked.
void CommandPool::fail_queue() {
  std::deque<std::shared_ptr<CommandCall>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(queue_);
  }
  const std::string why =
      fmt::format("not asked in this step: {} calls in a row were late", late_in_row_.load());
  for (const auto& call : calls) fail_call(*call, CommandFailure::late, why);
}

void CommandPool::give(CommandProcess& process) {
  std::shared_ptr<CommandCall> call;
  {
    const std::lock_guard lock(mutex_);
    call = queue_.front();
    queue_.pop_front();
  }
  process.ask(static_cast<int64_t>(ids_() >> 11), std::move(call));
}

/// The program with the fewest open calls, a new one before any has two; null: all have enough.
CommandProcess* CommandPool::find_place() {
  const auto fewer = [](const auto& a, const auto& b) { return a->open.size() < b->open.size(); };
  const auto least = std::min_element(processes_.begin(), processes_.end(), fewer);
  if (least != processes_.end() && (*least)->open.empty()) return least->get();
  if (static_cast<int64_t>(processes_.size()) < options_.workers) {
    processes_.push_back(std::make_unique<CommandProcess>(helpers_.start(options_.argv)));
    const std::lock_guard lock(mutex_);
    counts_.restarts += ++started_ > options_.workers;
    return processes_.back().get();
  }
  return static_cast<int64_t>((*least)->open.size()) < options_.in_flight ? least->get() : nullptr;
}

/// Until a program writes or reads, a call is late, or there is something new to do.
void CommandPool::wait_for_programs() {
  std::vector<pollfd> waits{{wake_, POLLIN, 0}};
  double left = 3600;
  bool asked = false;
  for (const auto& process : processes_) {
    waits.push_back({process->program.output, POLLIN, 0});
    if (process->wants_to_write()) waits.push_back({process->program.input, POLLOUT, 0});
    for (const auto& [id, call] : process->open) left = std::min(left, allowed_seconds(call) - age(call));
    asked = asked || !process->open.empty();
  }
  // Calls have a limit of their own: as long as one is within it, the rank does not hang.
  if (asked) {
    note_progress();
    left = std::min(left, kMostBetweenNotes);
  }
  ::poll(waits.data(), waits.size(), static_cast<int>(std::ceil(std::max(left, 0.0) * 1000)));
  uint64_t unused;
  [[maybe_unused]] const ssize_t got = ::read(wake_, &unused, sizeof unused);
}

double CommandPool::allowed_seconds(const CommandProcess::OpenCall& call) const {
  if (!late_in_step_) return options_.limit_seconds;
  const double usual =
      call.at_start ? std::max(kLeastStart, 3 * longest_start_) : std::max(kLeastAnswer, 3 * longest_answer_);
  return std::min(options_.limit_seconds, usual);
}

double CommandPool::age(const CommandProcess::OpenCall& call) {
  const std::chrono::duration<double> age = CommandProcess::Clock::now() - call.since;
  return age.count();
}

void CommandPool::drop_late(CommandProcess& process) {
  bool late = false;
  for (auto call = process.open.begin(); call != process.open.end();) {
    const double allowed = allowed_seconds(call->second);
    if (age(call->second) < allowed) {
      ++call;
      continue;
    }
    late = late_in_step_ = true;
    ++late_in_row_;
    fail_call(*call->second.call, CommandFailure::late, fmt::format("no answer within {} s", allowed));
    call = process.open.erase(call);
  }
  if (!late) return;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, call] : process.open) queue_.push_front(call.call);
  }
  process.open.clear();
  drop(process, CommandFailure::late, "");
}

/// Kills the program; the calls that are still open there have no answer. Where it died with its keeper they
/// wait again, and get to know that with the next start of a program.
void CommandPool::drop(CommandProcess& process, CommandFailure failure, const std::string& why) {
  const bool kept = helpers_.end(process.program);
  for (const auto& [id, call] : process.open) {
    if (kept) {
      fail_call(*call.call, failure, why);
      continue;
    }
    const std::lock_guard lock(mutex_);
    queue_.push_front(call.call);
  }
  std::erase_if(processes_, [&](const auto& p) { return p.get() == &process; });
}

void CommandPool::fail_call(CommandCall& call, CommandFailure failure, const std::string& why) {
  const std::lock_guard lock(mutex_);
  counts_.late += failure == CommandFailure::late;
  counts_.died += failure == CommandFailure::died;
  counts_.nonsense += failure == CommandFailure::nonsense;
  if (++failures_told_ <= kWarningsPerStep)
    log::warn("the reward program {:.120} {}: {}; it is started again",
              fmt::format("{}", fmt::join(options_.argv, " ")), name_of(failure), why);
  call.answer.set_value({.failure = failure, .why = why});
}

}  // namespace temper
