#include "src/run/groups/reward_workers.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "src/core/check.h"
#include "src/core/process/progress.h"
#include "src/core/stopwatch.h"
#include "src/core/threads/quiet_thread.h"

namespace temper {

namespace {

constexpr int64_t kThreads = 2;
constexpr double kPatience = 1;  // seconds
constexpr std::chrono::milliseconds kBetweenLooks{20};

}  // namespace

RewardWorkers::RewardWorkers(const RewardSet& rewards)
    : RewardWorkers(rewards, static_cast<int>(std::max(kThreads, rewards.concurrency()))) {}

/// What is begun has to end where the system gives no further thread.
RewardWorkers::RewardWorkers(const RewardSet& rewards, int num_threads)
    : RewardWorkers(rewards, NoThreads{}) {
  CHECK(num_threads > 0, "{} reward threads", num_threads);
  for (int i = 0; i < num_threads; ++i) threads_.push_back(quiet_thread([this, i] { work(i); }));
}

RewardWorkers::~RewardWorkers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void RewardWorkers::submit(Group group, std::shared_ptr<const Json> record) {
  {
    const std::lock_guard lock(mutex_);
    ++unfinished_;
    const auto open = std::make_shared<OpenGroup>(OpenGroup{std::move(group), std::move(record)});
    const std::vector<Trajectory>& samples = open->group.samples;
    for (size_t i = 0; i < samples.size(); ++i)
      if (!samples[i].is_fork()) jobs_.push_back({open, i});
    open->left = static_cast<size_t>(
        std::count_if(samples.begin(), samples.end(), [](const Trajectory& t) { return !t.is_fork(); }));
    if (open->left == 0) finish(*open);
  }
  changed_.notify_all();
}

std::vector<Group> RewardWorkers::take_finished() {
  const std::lock_guard lock(mutex_);
  return error_ ? std::vector<Group>{} : std::exchange(finished_, {});
}

std::vector<Group> RewardWorkers::collect(const std::function<bool()>& stops) {
  std::unique_lock lock(mutex_);
  std::optional<Stopwatch> stopped;
  while (!changed_.wait_for(lock, kBetweenLooks, [this] { return unfinished_ == 0; })) {
    lock.unlock();  // looking takes and sends messages
    if (!stopped && stops()) stopped.emplace();
    if (stopped && stopped->seconds() > kPatience) rewards_.abandon();
    lock.lock();
  }
  std::vector<Group> finished = std::exchange(finished_, {});
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return finished;
}

std::vector<RewardWorkers::Scored> RewardWorkers::take_times() {
  const std::lock_guard lock(mutex_);
  return std::exchange(times_, {});
}

void RewardWorkers::work(int thread) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    Trajectory& sample = job.of->group.samples[job.sample];
    Scored times{thread, sample.data_position, sample.sample, std::chrono::steady_clock::now(), {}};
    std::exception_ptr error;
    bool unscored = false;
    try {
      rewards_.score(sample, *job.of->record);
      note_progress();
    } catch (const Abandoned&) {
      unscored = true;
    } catch (...) {
      error = std::current_exception();  // rethrown on the thread that collects
    }
    times.end = std::chrono::steady_clock::now();
    lock.lock();
    times_.push_back(times);
    if (error && !error_) error_ = error;
    job.of->unscored = job.of->unscored || unscored;
    if (--job.of->left == 0) finish(*job.of);
  }
}

/// The caller holds the mutex. All trajectories of a session have its reward.
void RewardWorkers::finish(OpenGroup& open) {
  const Trajectory* first = nullptr;
  for (Trajectory& t : open.group.samples) {
    if (!t.is_fork()) {
      first = &t;
      continue;
    }
    t.raw_reward = first->raw_reward;
    t.reward = first->reward;
    t.reward_parts = first->reward_parts;
    t.excluded = first->excluded;
  }
  (open.unscored ? unscored_ : finished_).push_back(std::move(open.group));
  --unfinished_;
  changed_.notify_all();
}

}  // namespace temper
