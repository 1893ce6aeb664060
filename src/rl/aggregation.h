#pragma once
// The weight omega_t of a counted token: the whole normalisation of a loss in one factor, so that the loss of
// an optimizer update is sum_t omega_t l_t however its tokens are cut into micro-batches or spread over
// ranks.
//   token-mean               1 / N_tok          seq-mean-token-sum       1 / B
//   seq-mean-token-mean      1 / (B n_i)        seq-mean-token-sum-norm  1 / (B Lmax)
//   token-sum                1
// N_tok, B count the whole update over all ranks; B only responses with n_i > 0. Denominators are max(., 1).

#include <cstdint>

namespace temper {

enum class Aggregation {  // order of kAggregations
  token_mean,
  seq_mean_token_mean,
  seq_mean_token_sum,
  seq_mean_token_sum_norm,
  token_sum,
};

/// Counts of one optimizer update (all ranks, this update only).
struct UpdateCounts {
  int64_t tokens = 0;               // N_tok: counted tokens
  int64_t sequences = 0;            // B: responses with at least one counted token
  int64_t max_response_tokens = 0;  // Lmax = rollout.max_new_tokens
};

/// omega_t of a counted token in a response with `sequence_tokens` counted tokens. Tokens that are not
/// counted have weight 0, which callers set themselves.
double omega(Aggregation mode, const UpdateCounts& counts, int64_t sequence_tokens);

}  // namespace temper
