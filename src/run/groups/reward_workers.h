#pragma once
// Reward functions on threads while generation goes on, a response each. Scores do not depend on which thread
// ran them or when.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "src/core/json.h"
#include "src/rl/rewards/reward_set.h"
#include "src/rl/types.h"

namespace temper {

class RewardWorkers {
 public:
  /// It has as many threads as the functions can use.
  explicit RewardWorkers(const RewardSet& rewards);
  RewardWorkers(const RewardSet& rewards, int num_threads);
  ~RewardWorkers();
  RewardWorkers(const RewardWorkers&) = delete;
  RewardWorkers& operator=(const RewardWorkers&) = delete;

  void submit(Group group, std::shared_ptr<const Json> record);
  /// Groups that are scored and were not given out; does not wait.
  std::vector<Group> take_finished();
  /// Waits for everything submitted; groups in no particular order. Throws what a reward function threw. A
  /// second after `stops` is true nobody waits any longer: see take_unscored.
  std::vector<Group> collect(const std::function<bool()>& stops = [] { return false; });
  /// Groups with samples that have no verdict yet.
  std::vector<Group> take_unscored() { return std::exchange(unscored_, {}); }

  /// From when to when a thread scored a response.
  struct Scored {
    int thread = 0;
    int64_t data_position = 0;
    int32_t sample = 0;
    std::chrono::steady_clock::time_point begin, end;
  };
  /// All that were scored so far, and not given out before.
  std::vector<Scored> take_times();

 private:
  struct NoThreads {};
  RewardWorkers(const RewardSet& rewards, NoThreads) : rewards_(rewards) {}
  void work(int thread);
  struct OpenGroup {
    Group group;
    std::shared_ptr<const Json> record;
    size_t left = 0;        // samples to score
    bool unscored = false;  // one of them was abandoned
  };
  struct Job {
    std::shared_ptr<OpenGroup> of;
    size_t sample = 0;
  };
  void finish(OpenGroup& open);

  const RewardSet& rewards_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<Group> finished_, unscored_;
  size_t unfinished_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
  std::vector<Scored> times_;
  std::vector<std::thread> threads_;
};

}  // namespace temper
