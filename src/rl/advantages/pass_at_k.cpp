#include <algorithm>

#include "src/rl/advantages/statistics.h"

namespace temper {

/// Two that are best together leave nothing between the best and the second best.
void pass_at_k_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options) {
  const std::vector<double> scales = divisors(groups, options);
  for (size_t g = 0; g < groups.size(); ++g) {
    Rewarded order = groups[g];
    for (Trajectory* t : order) t->advantage = 0;
    if (order.size() < 2) continue;
    std::stable_sort(order.begin(), order.end(),
                     [](const Trajectory* a, const Trajectory* b) { return a->reward > b->reward; });
    if (const double lead = order[0]->reward - order[1]->reward; lead > 0)
      order[0]->advantage = lead / scales[g];
  }
}

}  // namespace temper
