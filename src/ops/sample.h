#pragma once
// Drawing tokens. Per row: logits z; the edits of the row; t = z (1/T); then min_p, top_k and top_p, in this
// order; then the id with the largest t_v - plog(E(x_v)) of those kept, x_v the random word of (seed, data
// position, sample, position, v): the Gumbel-max draw. Temperature 0: the largest z. Ties go to the smaller
// id. Nothing about the batch enters.
//   edits  z_v + bias; if seen: z_v / repetition_penalty where z_v > 0, else z_v * repetition_penalty;
//          z_v - frequency_penalty * count; if count > 0: z_v - presence_penalty; each step rounded
//   min_p  keeps v with e^(t_v - max t) >= min_p                                             (off: <= 0)
//   top_k  keeps the first k in the order (t descending, id ascending)                       (off: <= 0)
//   top_p  keeps v of that order while the mass before v is < top_p; p over top_k's survivors (off: >= 1)
// The log-prob is of the softmax over all V rows of w without edits and filters: bit for bit what
// logprob_forward gives.

#include <span>

#include "src/ops/dispatch.h"

namespace temper {

/// Ids >= num_sampleable are never drawn, but count in the log-prob. Non-finite logits, or edits that leave
/// no id to draw: Error(Exit::numerics).
/// tokens: [n] i32   logprob: [n] in the accumulate dtype   hidden: [n, D]   w: [V, D]   rows: n
void sample(Ctx& c, Tensor tokens, Tensor logprob, CTensor hidden, CTensor w, SampleRows rows,
            int64_t num_sampleable);

/// The rows where this context needs them (from its arena on a GPU).
SampleRows place_rows(Ctx& c, std::span<const SampleRow> rows);

}  // namespace temper
