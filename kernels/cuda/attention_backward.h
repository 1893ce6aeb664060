#pragma once
// The attention backward of the CUDA backend: one description of a call for its kernels.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/scratch/attention.h"

namespace temper::cuda {

struct AttentionBackwardCall {
  void* dqkv;                    // [T, (Hq+2Hkv)*dh]
  const void *dout, *qkv, *out;  // [T, Hq*dh], as dqkv, as dout
  const float* lse;              // [Hq, T]
  const int32_t* cu;             // [S+1]
  int T, S, q_heads, kv_heads, head_dim;
  float scale;

  __host__ __device__ int group() const { return q_heads / kv_heads; }
  __host__ __device__ int64_t row_width() const { return int64_t{q_heads + 2 * kv_heads} * head_dim; }
};

/// Any type and head dimension, fp32 arithmetic without tensor cores.
void attention_backward_plain(Ctx& ctx, DType type, const AttentionBackwardCall& a);

/// bf16, heads of 64 or 128, at most kMostBackwardRows rows: one pass over the tensor cores.
inline constexpr int kMostBackwardRows = 4096 * 128;
void attention_backward_one_pass(Ctx& ctx, const AttentionBackwardCall& a);

/// bf16, heads of 256, as many rows: dK and dV in one kernel, dQ in another.
void attention_backward_two_kernels(Ctx& ctx, const AttentionBackwardCall& a);

/// Sequences in whole tiles of `rows` rows: the first tile of sequence s. No two sequences share a tile, and
/// at most cu[S] / rows + S tiles are there. Needs no sums over the sequences before.
__host__ __device__ inline int first_tile(int cu, int s, int rows) { return cu / rows + s; }
/// The last sequence whose first tile is `tile` or before.
TEMPER_DEVICE int sequence_of_tile(const int32_t* cu, int sequences, int tile, int rows) {
  int low = 0, high = sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first_tile(cu[middle], middle, rows) <= tile)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace temper::cuda
