#pragma once
// What a harness does on its thread.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "src/agents/programs/player.h"

namespace temper {

class Harness::Work {
 public:
  Work(Helpers& helpers, HarnessConfig config, std::function<void()> on_news);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// What the loop wants of a session, in the order in which it said so.
  struct Order {
    enum class Kind { start, answer, refuse, stop, pause, go_on } kind;
    uint64_t session = 0;
    HarnessStart start = {};
    Json turn = {};
    std::string why = {};
  };
  void order(Order order);
  std::vector<HarnessTurn> take_turns();
  std::vector<HarnessEnd> take_ended();
  bool wait(double seconds);
  std::vector<uint64_t> blocked() const;
  int64_t waiting() const;
  int64_t running() const;
  HarnessCounts end_step();
  const HarnessConfig& config() const { return config_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    uint64_t session;
    HarnessStart start;
    Clock::time_point since;
  };

  void work();
  bool take_orders(PlayerNews& news);
  void obey(Order& order, PlayerNews& news);
  void begin_waiting(PlayerNews& news);
  double seconds_left(uint64_t session, Clock::time_point begin) const;
  void end_late(PlayerNews& news);
  void wait_for_programs();
  void publish(PlayerNews news);
  HarnessEnd judge(PlayerNews::Ended ended);
  void wake() const;

  const HarnessConfig config_;
  const std::string shown_;  // the program, for messages
  const std::function<void()> on_news_;
  int wake_ = -1;  // eventfd
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex.
  std::vector<Order> orders_;
  std::vector<HarnessTurn> turns_;
  std::vector<HarnessEnd> ended_;
  std::exception_ptr failure_;
  HarnessCounts counts_;
  std::vector<uint64_t> blocked_;
  int64_t waiting_count_ = 0, running_count_ = 0, failures_told_ = 0;
  bool stop_ = false;
  // What belongs to the thread.
  std::unique_ptr<Player> player_;
  std::deque<Waiting> waiting_;
  std::map<uint64_t, Clock::time_point> begun_;  // sessions that run; later where they were paused
  std::map<uint64_t, Clock::time_point> paused_;
  std::map<uint64_t, int64_t> tries_;  // that have failed, of sessions that may be started again
  std::thread thread_;
};

}  // namespace temper
