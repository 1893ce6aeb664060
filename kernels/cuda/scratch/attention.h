#pragma once
// Scratch memory of attention (scratch/linear.h says who calls this), but for lists of tiles, which stay far
// below a MiB, and which kernel takes a call.

#include "src/core/arena.h"

namespace temper::cuda {

/// Whether the kernels on tensor cores take heads of this size.
inline bool has_tensor_core_kernel(DType dtype, int64_t head_dim) {
  return dtype == DType::bf16 && (head_dim == 64 || head_dim == 128 || head_dim == 256);
}

/// Most query heads per kv head of the decode kernel.
inline constexpr int kDecodeGroup = 8;
/// Keys of a split.
inline constexpr int64_t kSplitKeys = 1024;

/// Splits that the pages of a sequence have room for.
inline int64_t num_splits(int64_t pages_per_sequence, int64_t page_tokens) {
  return (pages_per_sequence * page_tokens + kSplitKeys - 1) / kSplitKeys;
}

/// States of the splits, which the last one of a row and head merges.
struct DecodeSplits {
  float* outputs = nullptr;     // [sequences, q_heads, splits, head_dim]
  float* statistics = nullptr;  // [sequences, q_heads, splits, 2]
};

/// None for one split, which has nothing to merge.
inline DecodeSplits attention_decode_scratch(Arena& arena, int64_t sequences, int64_t q_heads,
                                             int64_t head_dim, int64_t splits) {
  if (splits <= 1) return {};
  const int64_t slots = sequences * q_heads * splits;
  const Tensor outputs = arena.make({slots, head_dim}, DType::f32),
               statistics = arena.make({slots, 2}, DType::f32);
  return {outputs.as<float>(), statistics.as<float>()};
}

/// <dout, out> of every row and head, [rows, q_heads].
inline Tensor attention_backward_plain_scratch(Arena& arena, int64_t rows, int64_t q_heads) {
  return arena.make({rows, q_heads}, DType::f32);
}

/// Keys of a block of the one-pass backward (sequences are padded to whole ones by every backward on tensor
/// cores), and queries of its step.
inline constexpr int64_t kBackwardKeys = 128;
inline constexpr int64_t backward_queries(int64_t head_dim) { return head_dim == 128 ? 64 : 128; }

/// Rows of padded sequences, which are whole blocks of keys.
struct BackwardSums {
  int64_t padded;     // rows
  Tensor lse, delta;  // [q_heads, padded]
  Tensor flags;       // [q_heads, padded / queries] i32
  Tensor dq;          // [q_heads, padded, head_dim]
};

inline BackwardSums attention_backward_one_pass_scratch(Arena& arena, int64_t rows, int64_t sequences,
                                                        int64_t q_heads, int64_t head_dim) {
  const int64_t padded = (rows / kBackwardKeys + sequences) * kBackwardKeys;
  return {padded, arena.make({q_heads, padded}, DType::f32), arena.make({q_heads, padded}, DType::f32),
          arena.make({q_heads, padded / backward_queries(head_dim)}, DType::i32),
          arena.make({q_heads, padded, head_dim}, DType::f32)};
}

/// -lse * log2(e) and <dout, out> of padded rows, [q_heads, padded] each.
struct BackwardStatistics {
  int64_t padded;
  Tensor lse, delta;
};
inline BackwardStatistics attention_backward_two_kernels_scratch(Arena& arena, int64_t rows,
                                                                 int64_t sequences, int64_t q_heads) {
  const int64_t padded = (rows / kBackwardKeys + sequences) * kBackwardKeys;
  return {padded, arena.make({q_heads, padded}, DType::f32), arena.make({q_heads, padded}, DType::f32)};
}

}  // namespace temper::cuda
