#include <algorithm>
#include <cmath>

#include "src/rl/losses/policy_loss.h"

namespace temper {

void cispo_loss(const PolicyTokens& in, const LossOptions& options, std::span<TokenTerm> terms) {
  const double c = options.ratio_clamp, low = 1 - options.clip_low, high = 1 + options.clip_high;
  for (size_t t = 0; t < terms.size(); ++t) {
    if (in.weight[t] == 0) continue;
    const double difference = in.logprob[t] - in.old_logprob[t];
    const double ratio = std::exp(c > 0 ? std::clamp(difference, -c, c) : difference);
    const double gradient = in.advantage[t] == 0 ? 0 : -in.advantage[t] * std::clamp(ratio, low, high);
    terms[t] = {.value = gradient * in.logprob[t],
                .gradient = gradient,
                .clipped = in.advantage[t] != 0 && (ratio < low || ratio > high)};
  }
}

}  // namespace temper
