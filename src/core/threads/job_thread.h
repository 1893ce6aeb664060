#pragma once
// A thread that works off jobs in the order in which they were given, and looks around now and then.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "src/core/threads/quiet_thread.h"

namespace temper {

class JobThread {
 public:
  using Job = std::function<void()>;

  /// `tick`: a job that runs every `tick_seconds`, between others. Jobs do not throw.
  JobThread(Job tick, double tick_seconds)
      : tick_(std::move(tick)), every_(tick_seconds), thread_(quiet_thread([this] { work(); })) {}
  /// Jobs that wait are still done.
  ~JobThread() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  JobThread(const JobThread&) = delete;
  JobThread& operator=(const JobThread&) = delete;

  /// From any thread; returns at once.
  void post(Job job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void work() {
    Clock::time_point due = Clock::now() + every_of();
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait_until(lock, due, [this] { return ends_ || !jobs_.empty(); });
      std::vector<Job> jobs = std::exchange(jobs_, {});
      const bool last = ends_ && jobs.empty();
      lock.unlock();
      for (const Job& job : jobs) job();
      jobs.clear();  // what they hold goes here, not under the lock
      if (Clock::now() >= due) {
        tick_();
        due = Clock::now() + every_of();
      }
      lock.lock();
      if (last) return;
    }
  }
  Clock::duration every_of() const {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(every_));
  }

  const Job tick_;
  const double every_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> jobs_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace temper
