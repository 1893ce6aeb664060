#include <algorithm>
#include <cmath>

#include "src/rl/losses/policy_loss.h"

namespace temper {

TokenTerm clipped_term(double advantage, double ratio, bool moves, const LossOptions& options) {
  if (advantage == 0) return {.value = std::isnan(ratio) ? ratio : 0};
  const double free = -advantage * ratio;
  const double held = -advantage * std::clamp(ratio, 1 - options.clip_low, 1 + options.clip_high);
  if (held > free) return {.value = held, .clipped = true};
  if (options.dual_clip > 0 && advantage < 0 && ratio > options.dual_clip)
    return {.value = -advantage * options.dual_clip, .dual_clipped = true};
  return {.value = free, .gradient = moves ? free : 0};
}

void ppo_loss(const PolicyTokens& in, const LossOptions& options, std::span<TokenTerm> terms) {
  const double c = options.ratio_clamp;
  for (size_t t = 0; t < terms.size(); ++t) {
    if (in.weight[t] == 0) continue;
    const double difference = in.logprob[t] - in.old_logprob[t];
    const double ratio = std::exp(c > 0 ? std::clamp(difference, -c, c) : difference);
    const bool outside = c > 0 && std::fabs(difference) > c;
    terms[t] = clipped_term(in.advantage[t], ratio, !outside, options);
  }
}

}  // namespace temper
