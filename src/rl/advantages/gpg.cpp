#include <algorithm>

#include "src/rl/advantages/statistics.h"

namespace temper {

void gpg_advantage(std::span<const Rewarded> groups, const AdvantageOptions& options) {
  double responses = 0, not_zero = 0;
  for (const Rewarded& group : groups)
    for (const Trajectory* t : group) {
      responses += 1;
      not_zero += t->reward != 0;
    }
  const double alpha = responses / std::max(not_zero, 1.0);
  for (const Rewarded& group : groups) {
    fill_centred(group, options);
    for (Trajectory* t : group) t->advantage *= alpha;
  }
}

}  // namespace temper
