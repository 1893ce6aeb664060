#pragma once
// The attention kernels of the CUDA backend, behind one description of a call. All give a query row the same
// bits within one class: {bf16 with heads of 64, 128 or 256} or {everything else}, chosen by type and head
// dimension alone.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/scratch/attention.h"

namespace temper::cuda {

/// Pages of one layer, [pages, Hkv, page_tokens, dh].
struct AttentionPages {
  void *keys, *values;
  const int32_t* table;    // [S, per_sequence]
  const int32_t* lengths;  // [S]
  int per_sequence, page_tokens, pages;
};

struct AttentionCall {
  void* out;          // [T, Hq*dh]
  float* lse;         // [Hq, T], null: not wanted
  const void* qkv;    // [T, (Hq+2Hkv)*dh]
  const int32_t* cu;  // [S+1]
  int T, S, q_heads, kv_heads, head_dim;
  float c;     // scale * log2(e)
  bool paged;  // keys from `pages`, else from qkv
  AttentionPages pages;
  /// Prefill leaves sequences with one row to the decode kernel, which is launched next and runs beside it.
  bool beside = false;

  __host__ __device__ int group() const { return q_heads / kv_heads; }
  __host__ __device__ int64_t row_width() const { return int64_t{q_heads + 2 * kv_heads} * head_dim; }
};

AttentionCall paged_call(Tensor out, CTensor qkv, const PagedKv& kv, int64_t layer, CTensor cu_seqlens,
                         const AttentionShape& shape, double scale);

/// Any type and head dimension, one warp per row and head.
void attention_plain(Ctx& ctx, DType type, const AttentionCall& a);

/// bf16, heads of 64, 128 or 256: any rows. Here and below what a kernel needs stays in the scratch memory:
/// two may run at once.
void attention_prefill(Ctx& ctx, const AttentionCall& a);

/// The sequences with one row, from pages; groups of at most kDecodeGroup query heads per kv head.
void attention_decode(Ctx& ctx, const AttentionCall& a);

/// Keys of a block in the kernels on tensor cores; blocks start at multiples of it.
__host__ __device__ constexpr int key_block(int head_dim) {
  return head_dim == 256 ? 64 : canonical::kKeyBlock;
}
/// Rows of a page that one tensor copy brings: copies make up granules of 64 keys.
__host__ __device__ inline int rows_per_copy(int page_tokens) {
  return page_tokens % 64 == 0 ? 64 : page_tokens % 32 == 0 ? 32 : 16;
}
/// Pages as (64 columns, rows, head_dim / 64): boxes of `box_rows` rows.
CUtensorMap page_map(const Libraries& libraries, const void* data, const AttentionCall& a, int box_rows);
/// First of the rows of `key` in that map.
TEMPER_DEVICE int page_row(const AttentionPages& p, int kv_heads, int sequence, int kv_head, int key) {
  const int entry = min(key / p.page_tokens, p.per_sequence - 1);
  return (p.table[int64_t{sequence} * p.per_sequence + entry] * kv_heads + kv_head) * p.page_tokens +
         key % p.page_tokens;
}
/// Sequence of a packed row.
TEMPER_DEVICE int sequence_of(const int32_t* cu, int sequences, int row) {
  int low = 0, high = sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (cu[middle] <= row)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}
/// Where the pages keep a row of this batch.
TEMPER_DEVICE int appended_row(const AttentionCall& a, int row, int kv_head) {
  const int sequence = sequence_of(a.cu, a.S, row);
  return page_row(a.pages, a.kv_heads, sequence, kv_head,
                  a.pages.lengths[sequence] - (a.cu[sequence + 1] - row));
}

}  // namespace temper::cuda
