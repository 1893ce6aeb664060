#include "src/rl/advantages/statistics.h"

namespace temper {

void opo_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options) {
  for (const Rewarded& group : groups) {
    if (group.size() == 1 || all_equal(group)) {
      fill_centred(group, options);
      continue;
    }
    double tokens = 0, sum = 0;
    for (const Trajectory* t : group) {
      const auto n = static_cast<double>(t->counted_tokens());
      tokens += n;
      sum += n * t->reward;
    }
    const double baseline = tokens == 0 ? 0 : sum / tokens;
    for (Trajectory* t : group) t->advantage = t->reward - baseline;
  }
}

}  // namespace temper
