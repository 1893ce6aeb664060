#pragma once
// RMSNorm of rows, and of the q and k heads of a qkv row. Storage S: fp32, bf16 or fp64; A is its accumulate
// dtype (fp32, fp32, fp64). A forward row has the same bits for any T, position and number of threads; weight
// gradients are in A and accumulate, over rows in an order that depends on T only.

#include "src/ops/dispatch.h"

namespace temper {

/// y[t,:] = round(w * round(x[t,:] * rstd[t])),  rstd[t] = 1 / sqrt(mean(x[t,:]^2) + eps)
/// y, x: [T, D]   w: [D]   rstd: [T] in A, kept for backward
void rmsnorm_forward(Ctx& c, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps);

/// sum = round(a + b), and the norm of sum: the residual stream and what reads it, in one pass. Its backward
/// is rmsnorm_backward. y, sum, a, b: [T, D]   w: [D]   rstd: [T] in A
void add_rmsnorm_forward(Ctx& c, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
                         double eps);

/// xh = x rstd, g = dy w:   dx = round(dresidual + rstd (g - xh mean(g xh)));   dw += sum_t dy xh
/// dx: [T, D], may be the memory of dy or dresidual   dw: [D] in A   dy, x: [T, D]
/// dresidual: [T, D], the gradient that goes past the norm, or empty   w: [D]   rstd: [T]
void rmsnorm_backward(Ctx& c, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x, CTensor w,
                      CTensor rstd);

/// RMSNorm over dh of every q head (by wq) and k head (by wk) of x; v is copied.
/// y, x: [T, (Hq+2Hkv)dh]   wq, wk: [dh]   rstd: [T, Hq+Hkv] in A
void head_norm_forward(Ctx& c, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk, AttentionShape shape,
                       double eps);

/// head_norm_forward, then rope_forward (ops/rope.h) on what it gave.
void head_norm_rope_forward(Ctx& c, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk, RopeInput rope,
                            AttentionShape shape, double eps);

/// head_norm_rope_forward, then append_kv (ops/attention.h) of what it gave. Afterwards y holds q; where its
/// k and v would be anything may be.
void head_norm_rope_append(Ctx& c, Tensor y, Tensor rstd, PagedKv kv, int64_t layer, CTensor x, CTensor wq,
                           CTensor wk, RopeInput rope, CTensor cu_seqlens, AttentionShape shape, double eps);

/// The backward of head_norm_rope_forward: rope_backward (ops/rope.h) of dy, rounded, then the backward of
/// the norm of each head. The v part of dx is that of dy; dwq and dwk accumulate over tokens and heads.
/// dx, dy: [T, (Hq+2Hkv)dh], may be the same memory   x: [T, (Hq+2Hkv)dh]   dwq, dwk: [dh] in A
/// wq, wk: [dh]   rstd: [T, Hq+Hkv]
void head_norm_rope_backward(Ctx& c, Tensor dx, Tensor dwq, Tensor dwk, CTensor dy, CTensor x, CTensor wq,
                             CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape);

}  // namespace temper
