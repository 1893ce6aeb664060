#pragma once
// Drawing tokens, from a vocabulary that one rank has or that ranks share in whole chunks. Per row: logits z;
// the edits of the row; t = z (1/T); then min_p, top_k and top_p, in this order; then the id with the largest
// t_v - plog(E(x_v)) of those kept, x_v the random word of (seed, data position, sample, position, v): the
// Gumbel-max draw. Temperature 0: the largest z. Ties go to the smaller id. Nothing about the batch enters.
//   edits  z_v + bias; if seen: z_v / repetition_penalty where z_v > 0, else z_v * repetition_penalty;
//          z_v - frequency_penalty * count; if count > 0: z_v - presence_penalty; each step rounded
//   min_p  keeps v with e^(t_v - max t) >= min_p                                             (off: <= 0)
//   top_k  keeps the first k in the order (t descending, id ascending)                       (off: <= 0)
//   top_p  keeps v of that order while the mass before v is < top_p; p over top_k's survivors (off: >= 1)
// The log-prob is of the softmax over all V rows of w without edits and filters: bit for bit what
// logprob_forward gives.

#include <functional>
#include <span>

#include "src/ops/dispatch.h"

namespace temper {

/// Ids >= num_sampleable are never drawn, but count in the log-prob. Non-finite logits, or edits that leave
/// no id to draw: Error(Exit::numerics); on a GPU a log-prob of NaN, or token -1.
/// tokens: [n] i32   logprob: [n] in the accumulate dtype   hidden: [n, D]   w: [V, D]   rows: n
/// `share`: w is that part of the vocabulary. `gather` then copies, among the chunks of all of it, those of
/// the other shares to where they belong: a call for every 64 rows (a GPU, without filters: 2,048).
void sample(Ctx& c, Tensor tokens, Tensor logprob, CTensor hidden, CTensor w, SampleRows rows,
            int64_t num_sampleable, VocabularyShare share = {},
            const std::function<void(const SampleChunks&)>& gather = {});

/// The same step by step. In scratch, not set; `kept`: how many rows have filters.
SampleChunks make_sample_chunks(Ctx& c, std::span<const SampleRow> rows, int64_t kept, DType accumulate,
                                int64_t vocabulary);
/// Then each rank's part of the vocabulary.   chunks: those of w
void sample_chunks(Ctx& c, SampleChunks chunks, CTensor hidden, CTensor w, SampleRows rows,
                   int64_t num_sampleable, VocabularyShare share);
/// Then, from the chunks of all shares in ascending order.
void sample_merge(Ctx& c, Tensor tokens, Tensor logprob, SampleChunks chunks, SampleRows rows,
                  int64_t num_sampleable);

/// The rows where this context needs them (from its arena on a GPU).
SampleRows place_rows(Ctx& c, std::span<const SampleRow> rows);

}  // namespace temper
