#pragma once
// Scratch memory of the row operations of hybrid models (scratch/linear.h says who calls this). What a block
// takes depends on the number of rows alone.

#include <algorithm>

#include "kernels/cuda/scratch/norm.h"

namespace temper::cuda {

/// `count` things in blocks of so many, at most `most_blocks` or with the least of a block.
inline int64_t per_block_of(int64_t count, int64_t most_blocks, int64_t least) {
  const int64_t even = (count + most_blocks - 1) / most_blocks;
  return std::max<int64_t>(1, (even + least - 1) / least) * least;
}
inline int64_t blocks_of(int64_t count, int64_t per_block) { return (count + per_block - 1) / per_block; }

/// Heads of a block of gated_norm_backward, and sums of dw, [blocks, width].
inline NormPartials gated_norm_backward_scratch(Arena& arena, int64_t heads, int64_t width) {
  const int64_t per_block = per_block_of(heads, 132 * 4, 64);
  return {per_block, arena.make({blocks_of(heads, per_block), width}, DType::f32)};
}

/// Heads of a block of gated_heads_backward, all of q or all of k, and sums of dwq, then of dwk.
struct HeadPartials {
  int64_t per_block, query_blocks, key_blocks;
  Tensor sums;  // [query_blocks + key_blocks, width]
};
inline HeadPartials gated_heads_backward_scratch(Arena& arena, int64_t queries, int64_t keys, int64_t width) {
  const int64_t per_block = per_block_of(queries + keys, 132 * 4, 16),
                query_blocks = blocks_of(queries, per_block), key_blocks = blocks_of(keys, per_block);
  return {per_block, query_blocks, key_blocks, arena.make({query_blocks + key_blocks, width}, DType::f32)};
}

/// Rows of a block of causal_conv_backward, at most.
inline constexpr int64_t kMostConvRun = 256;

/// Rows of a block of causal_conv_backward, and sums of dw, [blocks, channels * taps].
inline NormPartials causal_conv_backward_scratch(Arena& arena, int64_t rows, int64_t channels, int64_t taps) {
  const int64_t per_block = std::min(kMostConvRun, per_block_of(rows, 128, 16));
  return {per_block, arena.make({blocks_of(rows, per_block), channels * taps}, DType::f32)};
}

/// Rows of a block of delta_gates_backward, and sums of da_log, then of ddt_bias, [2, blocks, heads].
inline NormPartials delta_gates_backward_scratch(Arena& arena, int64_t rows, int64_t heads) {
  const int64_t per_block = per_block_of(rows, 132 * 2, 32);
  return {per_block, arena.make({2, blocks_of(rows, per_block), heads}, DType::f32)};
}

}  // namespace temper::cuda
