#include "src/rl/advantages/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/core/check.h"

namespace temper {
namespace {

constexpr double kLeastVariance = 1e-8;

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double std_of(std::span<const double> values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (static_cast<double>(values.size()) - 1));
}

std::vector<double> rewards_of(const Rewarded& group) {
  std::vector<double> rewards;
  for (const Trajectory* t : group) rewards.push_back(t->reward);
  return rewards;
}

/// Every counted token of all groups: its response and its place there.
template <class Function>
void for_each_counted(std::span<const Rewarded> groups, const Function& function) {
  for (const Rewarded& group : groups)
    for (Trajectory* t : group)
      for (size_t i = 0; i < t->response.mask.size(); ++i)
        if (t->response.mask[i]) function(*t, i);
}

}  // namespace

double mean_reward(const Rewarded& group) { return mean_of(rewards_of(group)); }
double std_reward(const Rewarded& group) { return std_of(rewards_of(group)); }

bool all_equal(const Rewarded& group) {
  return std::all_of(group.begin(), group.end(),
                     [&](const Trajectory* t) { return t->reward == group.front()->reward; });
}

void fill_centred(const Rewarded& group, const AdvantageOptions& options) {
  if (group.size() == 1) {
    Trajectory& only = *group.front();
    only.advantage = options.single_group == SingleGroup::verl ? only.reward : 0;
    return;
  }
  // Rounding of the mean must not become a signal of size 1e-16 / eps.
  const bool equal = all_equal(group);
  const double mean = mean_reward(group);
  for (Trajectory* t : group) t->advantage = equal ? 0 : t->reward - mean;
}

std::vector<double> divisors(std::span<const Rewarded> groups, const AdvantageOptions& options) {
  std::vector<double> all, result;
  for (const Rewarded& group : groups)
    for (const Trajectory* t : group) all.push_back(t->reward);
  const double of_all = all.size() > 1 ? std_of(all) : 1;
  for (const Rewarded& group : groups) {
    const double of_group = group.size() > 1 ? std_reward(group) : 1;
    result.push_back(options.scale == AdvantageScale::none
                         ? 1
                         : (options.scale == AdvantageScale::group ? of_group : of_all) + options.eps);
  }
  return result;
}

void whiten_tokens(std::span<const Rewarded> groups) {
  double count = 0, sum = 0, squares = 0;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for_each_counted(groups, [&](const Trajectory& t, size_t i) {
    const double a = t.advantage_of(i);
    count += 1;
    sum += a;
    low = std::min(low, a);
    high = std::max(high, a);
  });
  const double mean = sum / std::max(count, 1.0);
  for_each_counted(groups, [&](const Trajectory& t, size_t i) {
    squares += (t.advantage_of(i) - mean) * (t.advantage_of(i) - mean);
  });
  const double scale = std::sqrt(squares / std::max(count - 1, 1.0) + kLeastVariance);
  const bool equal = !(low < high);
  for (const Rewarded& group : groups)
    for (Trajectory* t : group) {
      t->advantage = equal || t->counted_tokens() == 0 ? 0 : (t->advantage - mean) / scale;
      for (size_t i = 0; i < t->advantages.size(); ++i)
        t->advantages[i] = equal || !t->response.mask[i] ? 0 : (t->advantages[i] - mean) / scale;
    }
}

void check_kl_inputs(const Trajectory& t) {
  const size_t n = t.response.tokens.size();
  CHECK(t.response.mask.size() == n && t.response.logprobs.size() == n && t.ref_logprobs.size() == n,
        "KL in the reward of group {}, sample {}: {} tokens, {} mask, {} log-probs, {} reference log-probs",
        t.group, t.sample, n, t.response.mask.size(), t.response.logprobs.size(), t.ref_logprobs.size());
}

}  // namespace temper
