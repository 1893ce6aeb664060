#include "src/rl/advantages/statistics.h"

namespace temper {

void grpo_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options) {
  const std::vector<double> scales = divisors(groups, options);
  for (size_t g = 0; g < groups.size(); ++g) {
    fill_centred(groups[g], options);
    for (Trajectory* t : groups[g])
      if (t->advantage != 0) t->advantage /= scales[g];
  }
}

}  // namespace temper
