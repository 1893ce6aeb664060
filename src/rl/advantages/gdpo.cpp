#include <algorithm>
#include <cmath>

#include "src/rl/advantages/statistics.h"

namespace temper {
namespace {

constexpr double kEps = 1e-4;  // TRL's, in both places

/// Its own value of a part, weighted after the statistics; nothing: the response has no such part.
std::vector<double> values_of(const Rewarded& group, const std::string& part) {
  std::vector<double> values;
  for (const Trajectory* t : group)
    for (const auto& [name, value] : t->reward_parts)
      if (name == part) values.push_back(value);
  return values.size() == group.size() ? values : std::vector<double>();
}

/// The advantages of GRPO of one part, on a copy of the group.
void add_part(const Rewarded& group, const std::vector<double>& values, double weight,
              const AdvantageOptions& options) {
  std::vector<Trajectory> copies(group.size());
  Rewarded of_part;
  for (size_t i = 0; i < copies.size(); ++i) {
    copies[i].reward = values[i];
    of_part.push_back(&copies[i]);
  }
  AdvantageOptions own = options;
  own.eps = kEps;
  own.scale = AdvantageScale::group;
  grpo_advantage(std::span(&of_part, 1), own);
  for (size_t i = 0; i < copies.size(); ++i) group[i]->advantage += weight * copies[i].advantage;
}

/// (x - mean) / (std + eps) over all responses.
void normalise(std::span<const Rewarded> groups) {
  double n = 0, sum = 0, squares = 0;
  bool equal = true;
  for (const Rewarded& group : groups)
    for (const Trajectory* t : group) {
      n += 1;
      sum += t->advantage;
      equal = equal && t->advantage == groups.front().front()->advantage;
    }
  const double mean = sum / n;
  for (const Rewarded& group : groups)
    for (const Trajectory* t : group) squares += (t->advantage - mean) * (t->advantage - mean);
  const double scale = std::sqrt(squares / std::max(n - 1, 1.0)) + kEps;
  for (const Rewarded& group : groups)
    for (Trajectory* t : group) t->advantage = equal ? 0 : (t->advantage - mean) / scale;
}

}  // namespace

void gdpo_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options) {
  for (const Rewarded& group : groups) {
    for (Trajectory* t : group) t->advantage = 0;
    bool parted = false;
    for (const auto& [part, weight] : options.parts) {
      const std::vector<double> values = values_of(group, part);
      if (values.empty()) continue;
      add_part(group, values, weight, options);
      parted = true;
    }
    if (parted) continue;  // rollouts from elsewhere may have the sum alone
    std::vector<double> rewards;
    for (const Trajectory* t : group) rewards.push_back(t->reward);
    add_part(group, rewards, 1, options);
  }
  normalise(groups);
}

}  // namespace temper
