#pragma once
// The kernels of the gated delta rule, behind one description of a call. All give a row the same bits within
// one storage type.

#include "kernels/delta_types.h"
#include "src/core/ctx.h"

namespace temper::cuda {

/// One layer of DeltaPages, and the numbers of the batch's sequences.
struct DeltaLayer {
  void *keys, *writes;  // [tails, kDeltaChunk * Hk dk], [tails, kDeltaChunk * Hv dv]
  float* decays;        // [tails, kDeltaChunk * Hv]
  void* states;         // [slots, Hv dk dv] fp32, of bf16 models in planes (device/delta.cuh)
  const int32_t *tails, *from, *to, *lengths;  // [S]
};

/// DeltaShape as kernels have it.
struct DeltaHeads {
  int value_heads, group, key_dim, value_dim;  // group: value heads of a key head
  int64_t key_width, row_width;                // of all key heads, of q, k and v
};

struct DeltaCall {
  void* o;                // [T, Hv dv]
  const void* qkv;        // [T, C]
  const float *beta, *g;  // [T, Hv]
  const int32_t* cu;      // [S+1]
  int T, S;
  DeltaHeads heads;
  bool paged;
  void* u;           // [T, Hv dv] and
  float* decays;     // [T, Hv], where not paged
  DeltaLayer pages;  // where paged
};

DeltaCall packed_call(Tensor o, Tensor u, Tensor decays, CTensor qkv, CTensor beta, CTensor g,
                      CTensor cu_seqlens, const DeltaShape& shape);
DeltaCall paged_call(Tensor o, const DeltaPages& pages, int64_t layer, CTensor qkv, CTensor beta, CTensor g,
                     CTensor cu_seqlens, const DeltaShape& shape);

/// Any heads of up to 256, any rows; with `skip_single_rows` sequences with one row are left to another
/// kernel.
void delta_rule_plain(Ctx& ctx, DType type, const DeltaCall& c, bool skip_single_rows);

/// Whether the kernels on tensor cores take these heads.
inline bool has_delta_kernel(DType type, const DeltaHeads& h) {
  return type == DType::bf16 && h.key_dim == 128 && h.value_dim == 128;
}
/// Blocks of sequences and heads that keep most of the chip busy; where there are fewer, the scan cuts heads.
inline constexpr int kEnoughScans = 100;
/// Any rows of such heads; `skip_single_rows` as above.
void delta_rule_scan(Ctx& ctx, const DeltaCall& c, bool skip_single_rows);
/// The last part of the two kernels that take any rows, over pages: keys and decays go into the tails.
void append_to_tails(Ctx& ctx, DType type, const DeltaCall& c, bool skip_single_rows);
/// Over pages: the sequences with one row, or all, which takes time by the row; one without rows stays as it
/// is.
void delta_rule_decode(Ctx& ctx, const DeltaCall& c, bool single_rows_only);

}  // namespace temper::cuda
