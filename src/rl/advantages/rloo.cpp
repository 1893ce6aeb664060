#include "src/rl/advantages/statistics.h"

namespace temper {

/// The mean of the others lies n / (n - 1) times as far away as that of all.
void rloo_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options) {
  for (const Rewarded& group : groups) {
    fill_centred(group, options);
    if (group.size() == 1) continue;
    const auto n = static_cast<double>(group.size());
    for (Trajectory* t : group) t->advantage *= n / (n - 1);
  }
}

}  // namespace temper
