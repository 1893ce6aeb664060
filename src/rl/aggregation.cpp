#include "src/rl/aggregation.h"

#include <algorithm>

#include "src/core/check.h"

namespace temper {
namespace {

double at_least_one(int64_t count) { return static_cast<double>(std::max<int64_t>(count, 1)); }

}  // namespace

double omega(Aggregation mode, const UpdateCounts& counts, int64_t sequence_tokens) {
  const double sequences = at_least_one(counts.sequences);
  switch (mode) {
    case Aggregation::token_mean:
      return 1 / at_least_one(counts.tokens);
    case Aggregation::seq_mean_token_mean:
      return 1 / (sequences * at_least_one(sequence_tokens));
    case Aggregation::seq_mean_token_sum:
      return 1 / sequences;
    case Aggregation::seq_mean_token_sum_norm:
      CHECK(counts.max_response_tokens > 0, "seq-mean-token-sum-norm without a maximal response length");
      return 1 / (sequences * at_least_one(counts.max_response_tokens));
    case Aggregation::token_sum:
      return 1;
  }
  CHECK(false, "unknown aggregation {}", static_cast<int>(mode));
}

}  // namespace temper
