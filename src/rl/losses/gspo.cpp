#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/rl/losses/policy_loss.h"

namespace temper {

void gspo_loss(const PolicyTokens& in, const LossOptions& options, std::span<TokenTerm> terms) {
  const size_t sequences = in.sequence_begin.empty() ? 0 : in.sequence_begin.size() - 1;
  CHECK(terms.empty() || (sequences > 0 && in.sequence_begin.back() == std::ssize(terms)),
        "a loss of sequences, {} borders of {} tokens", in.sequence_begin.size(), terms.size());
  for (size_t s = 0; s < sequences; ++s) {
    const auto begin = static_cast<size_t>(in.sequence_begin[s]),
               end = static_cast<size_t>(in.sequence_begin[s + 1]);
    double sum = 0, counted = 0;
    for (size_t t = begin; t < end; ++t) {
      if (in.weight[t] == 0) continue;
      sum += in.logprob[t] - in.old_logprob[t];
      counted += 1;
    }
    const double ratio = std::exp(sum / std::max(counted, 1.0));
    for (size_t t = begin; t < end; ++t)
      if (in.weight[t] != 0)
        terms[t] = clipped_term(in.advantage[t], ratio, true, {options.clip_low, options.clip_high});
  }
}

}  // namespace temper
