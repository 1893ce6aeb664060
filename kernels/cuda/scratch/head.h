#pragma once
// Scratch memory of the head (scratch/linear.h says who calls this). V: ids of the rank's share.

#include <algorithm>

#include "kernels/types.h"
#include "src/core/arena.h"

namespace temper::cuda {

inline constexpr int64_t whole_eights(int64_t count) { return (count + 7) / 8 * 8; }

/// Rows of hidden states whose logits log-probs have at once.
inline constexpr int64_t kLogprobRows = 2048;

/// fp32 logits of some rows and of a window of ids; rows of `pitch` elements.
struct LogitsMemory {
  int64_t most_ids, pitch;
  Tensor z;
};

/// 64 MiB, or one chunk of ids.
inline LogitsMemory logits_scratch(Arena& arena, int64_t rows, int64_t V) {
  constexpr int64_t kLogits = int64_t{16} << 20;
  const int64_t most_ids = std::max(kVocabularyChunk, kLogits / rows / kVocabularyChunk * kVocabularyChunk),
                pitch = whole_eights(std::min(most_ids, V));
  return {most_ids, pitch, arena.make({rows, pitch}, DType::f32)};
}

/// Statistics of every row and chunk, [rows, chunks, 3].
inline Tensor logprob_forward_scratch(Arena& arena, int64_t rows, int64_t V) {
  return arena.make({rows, num_chunks(V), 3}, DType::f32);
}

/// The rows with a gradient.
struct ActiveRows {
  Tensor index;  // [rows] i32
  Tensor count;  // [1] i32
};
inline ActiveRows logprob_backward_scratch(Arena& arena, int64_t rows) {
  return {arena.make({rows}, DType::i32), arena.make({1}, DType::i32)};
}

/// Ids whose logits a backward has at once. A constant: the order of dhidden's sum is a matter of V alone.
inline constexpr int64_t kBackwardIds = 8192;

/// Rows that the backward takes at once, of `active` ones: at most 4096, in blocks of one size.
inline int64_t backward_rows_at_once(int64_t active) {
  constexpr int64_t kMostRows = 4096;  // 192 MiB of logits and their gradients
  const int64_t blocks = (active + kMostRows - 1) / kMostRows;
  return blocks == 0 ? 0 : whole_eights((active + blocks - 1) / blocks);
}

/// What the backward makes of some rows, in whole eights.
struct BackwardRows {
  int64_t pitch;   // of z and dz
  Tensor x;        // [rows, D]
  Tensor z;        // [rows, pitch] f32
  Tensor dz;       // [rows, pitch]; of fp32 hidden states z
  Tensor dhidden;  // [rows, D] f32
};
inline BackwardRows logprob_backward_rows_scratch(Arena& arena, int64_t rows, int64_t D, int64_t V,
                                                  DType dtype) {
  const int64_t n = whole_eights(rows), pitch = std::min(kBackwardIds, whole_eights(V));
  BackwardRows made{pitch, arena.make({n, D}, dtype), arena.make({n, pitch}, DType::f32), {}, {}};
  made.dz = dtype == DType::f32 ? made.z : arena.make({n, pitch}, dtype);
  made.dhidden = arena.make({n, D}, DType::f32);
  return made;
}

}  // namespace temper::cuda
