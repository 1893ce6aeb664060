#pragma once
// Whether bytes are the same on two ranks, told where they lie: nothing of them is brought to the host.

#include "src/ops/dispatch.h"

namespace temper {

/// sum += sum over i of digest_of_word(w[i], first + i), modulo 2^64; w: the bytes of x as words of 8 bytes,
/// the last one with zeros behind (kernels/digest.h). Any order of the words gives the same bits. A change of
/// bytes, or of their places, leaves it as it was once in 2^64.
/// sum: [2] i32, low half first    x: of any type
void add_digest(Ctx& c, Tensor sum, CTensor x, int64_t first);
/// How far `first` moves on for the bytes that follow.
int64_t digest_words(int64_t bytes);

}  // namespace temper
