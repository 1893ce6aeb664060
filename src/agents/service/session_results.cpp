#include "src/agents/service/session_results.h"

#include <utility>

namespace temper {

void SessionResults::put(SessionResult result) {
  const std::lock_guard lock(mutex_);
  ended_.push_back(std::move(result));
}

std::vector<SessionResult> SessionResults::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
}

void SessionResults::rest(SessionRest rest) {
  const std::lock_guard lock(mutex_);
  rests_.push_back(std::move(rest));
}

std::vector<SessionRest> SessionResults::take_rests() {
  const std::lock_guard lock(mutex_);
  return std::exchange(rests_, {});
}

void SessionResults::count(const std::string& name, double times) {
  const std::lock_guard lock(mutex_);
  counts_[name] += times;
}

void SessionResults::count(const std::optional<TurnRows>& rows) {
  if (!rows) return;
  count("rollout/turn_rows", static_cast<double>(rows->prompt));
  count("rollout/turn_rows_found", static_cast<double>(rows->found));
  count("rollout/turn_rows_again", static_cast<double>(rows->again));
}

bool SessionResults::is_first(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return said_.insert(name).second;
}

std::map<std::string, double> SessionResults::take_counts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(counts_, {});
}

}  // namespace temper
