#include "src/rl/rewards/exact.h"

#include "src/rl/rewards/text.h"

namespace temper {

Verdict ExactReward::score(const RewardInput& input) const {
  return strip(input.response) == strip(input.answer) ? 1 : 0;
}

}  // namespace temper
