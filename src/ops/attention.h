#pragma once
// Causal grouped-query attention over packed sequences, and over keys and values in pages.
// A query row has the same bits from both, for any chunking, page order, page size and batch.
// The exact arithmetic of the CPU backend: kernels/cpu/NUMERICS.md.

#include "src/ops/dispatch.h"

namespace temper {

inline constexpr int64_t kMaxHeadDim = 256;
/// A head_dim that attention takes is a multiple of this.
inline int64_t head_dim_step(Device device) { return like_gpu(device) ? 8 : 4; }

/// Query i of head h attends the keys j <= i of its own sequence and of kv head h / (Hq/Hkv):
///   s_ij = scale * <q_i, k_j>,  lse_i = ln sum_j e^{s_ij},  out_i = sum_j e^{s_ij - lse_i} v_j
/// out: [T, Hq*dh]  lse: [Hq, T] accumulate dtype (keep both for backward)
/// qkv: [T, (Hq+2*Hkv)*dh] after norm and rope  cu_seqlens: [S+1] i32, from 0 to T
/// dh is a multiple of head_dim_step, at most kMaxHeadDim; scale is positive.
void attention_varlen_forward(Ctx& c, Tensor out, Tensor lse, CTensor qkv, CTensor cu_seqlens,
                              AttentionShape shape, double scale);

/// delta_i = <dout_i, out_i>,  p_ij = e^{s_ij - lse_i},  ds_ij = p_ij (<dout_i, v_j> - delta_i)
/// dq_i = scale * sum_j ds_ij k_j,  dk_j = scale * sum_i ds_ij q_i,  dv_j = sum_i p_ij dout_i
/// dk and dv sum over the query heads of their kv head. Every element of dqkv is overwritten.
/// The gradients of a sequence do not depend on what else is packed beside it, nor on threads.
/// dqkv, qkv: [T, (Hq+2*Hkv)*dh]  dout, out: [T, Hq*dh]  lse: [Hq, T], as attention_varlen_forward left them
void attention_varlen_backward(Ctx& c, Tensor dqkv, CTensor dout, CTensor qkv, CTensor out, CTensor lse,
                               CTensor cu_seqlens, AttentionShape shape, double scale);

/// Writes the key and value rows of this batch to the pages of `layer`. Row u of the n rows of sequence s is
/// position lengths[s] - n + u. qkv: [T, (Hq+2*Hkv)*dh]  cu_seqlens: [S+1] i32
void append_kv(Ctx& c, PagedKv kv, int64_t layer, CTensor qkv, CTensor cu_seqlens, AttentionShape shape);
/// The shapes and types that `append_kv` asks for.
void check_pages(const PagedKv& kv, int64_t layer, const CTensor& qkv, const CTensor& cu_seqlens,
                 const AttentionShape& shape);

/// As attention_varlen_forward, with keys and values from the pages, which already hold the rows of this
/// batch: row u of the n rows of sequence s attends positions 0 .. lengths[s] - n + u. Slots from lengths[s]
/// on may hold NaN. On a GPU the older keys of a sequence with one row are read ahead: of them none may come
/// from a kernel since the last copy from the host (a step begins with that of its tables).
/// out: [T, Hq*dh]  qkv: [T, (Hq+2*Hkv)*dh] (its q part is read)  cu_seqlens: [S+1] i32
void attention_paged(Ctx& c, Tensor out, CTensor qkv, PagedKv kv, int64_t layer, CTensor cu_seqlens,
                     AttentionShape shape, double scale);

}  // namespace temper
