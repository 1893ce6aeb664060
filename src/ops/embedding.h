#pragma once
// Rows of the embedding table by token id, and their gradient.

#include "src/ops/dispatch.h"

namespace temper {

/// y[t,:] = w[tokens[t],:]      y: [T, D]   tokens: [T] i32, each in [0, V)   w: [V, D]
/// Where w is a share of the vocabulary, rows of other ids are -0: a sum over the shares copies each row.
void embedding_forward(Ctx& c, Tensor y, CTensor tokens, CTensor w, VocabularyShare share = {});

/// dw[tokens[t],:] += dy[t,:] in ascending t, but for tokens[t] == skip_id (the padding token; -1: none)
/// dw: [V, D] in the accumulate dtype   dy: [T, D]   tokens: [T] i32; those of other shares take no part
void embedding_backward(Ctx& c, Tensor dw, CTensor dy, CTensor tokens, int64_t skip_id,
                        VocabularyShare share = {});

}  // namespace temper
