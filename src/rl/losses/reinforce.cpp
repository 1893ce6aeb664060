#include "src/rl/losses/policy_loss.h"

namespace temper {

void reinforce_loss(const PolicyTokens& in, const LossOptions&, std::span<TokenTerm> terms) {
  for (size_t t = 0; t < terms.size(); ++t)
    if (in.weight[t] != 0)
      terms[t] = {.value = -in.advantage[t] * in.logprob[t], .gradient = -in.advantage[t]};
}

}  // namespace temper
