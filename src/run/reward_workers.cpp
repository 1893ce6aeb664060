#include "src/run/reward_workers.h"

#include <cmath>

#include "src/core/check.h"
#include "src/rl/registry.h"

namespace temper {

RewardSet::RewardSet(const RewardConfig& config) {
  for (const RewardFunctionConfig& f : config.functions) entries_.push_back({f.name, f.weight, make_reward(f)});
}

void RewardSet::score(Trajectory& t, const Json& record) const {
  const RewardInput input{.prompt = t.prompt,
                          .response = t.response,
                          .answer = t.answer,
                          .response_tokens = static_cast<int64_t>(t.response_tokens.size()),
                          .finish_reason = t.finish_reason,
                          .record = record};
  double raw = 0, shaping = 0;
  t.reward_parts.clear();
  for (const Entry& e : entries_) {
    const double value = e.reward->score(input);
    if (!std::isfinite(value))
      fail(Exit::numerics, {.what = "a reward is not finite",
                            .where = fmt::format("reward function {}, data position {}", e.name, t.data_position),
                            .why = fmt::format("it returned {}", value)});
    t.reward_parts.emplace_back(e.name, value);
    (e.reward->is_shaping() ? shaping : raw) += e.weight * value;
  }
  t.raw_reward = raw;
  t.reward = raw + shaping;
}

void RewardSet::check_answer(std::string_view answer, const std::string& where) const {
  for (const Entry& e : entries_) e.reward->check_answer(answer, where);
}

RewardWorkers::RewardWorkers(const RewardSet& rewards, int num_threads) : rewards_(rewards) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
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
    jobs_.push_back({std::move(group), std::move(record)});
    ++unfinished_;
  }
  changed_.notify_all();
}

std::vector<Group> RewardWorkers::collect() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return unfinished_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::exchange(finished_, {});
}

void RewardWorkers::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      for (Trajectory& t : job.group.samples) rewards_.score(t, *job.record);
    } catch (...) {
      error = std::current_exception();  // rethrown on the thread that collects
    }
    lock.lock();
    if (error && !error_) error_ = error;
    finished_.push_back(std::move(job.group));
    --unfinished_;
    changed_.notify_all();
  }
}

}  // namespace temper
