#pragma once
// What attention with an output gate has around its core (ops/attention.h): heads of a projected row, in
// which each query head is followed by its gate, [q_0 | gate_0 | q_1 | gate_1 | .. | k | v], (2 Hq + 2 Hkv)
// dh wide. A is the accumulate dtype.

#include "kernels/types.h"
#include "src/core/ctx.h"

namespace temper {

/// qkv: of every q head (by wq) and k head (by wk) the norm of ops/hybrid/offset_norm.h, then ops/rope.h over
/// the first D elements of the head, pairs (i, i + D/2), where the tables have D/2 columns; v is copied.
/// qkv: [T, (Hq+2Hkv)dh]   rstd: [T, Hq+Hkv] in A   x: [T, (2Hq+2Hkv)dh]   wq, wk: [dh]
void gated_heads_forward(Ctx& c, Tensor qkv, Tensor rstd, CTensor x, CTensor wq, CTensor wk, RopeInput rope,
                         AttentionShape shape, double eps);

/// The columns of q, k and v of dx, from dqkv; dwq and dwk accumulate over tokens and heads.
/// dx, x: [T, (2Hq+2Hkv)dh]   dwq, dwk: [dh] in A   dqkv: [T, (Hq+2Hkv)dh]   rstd: [T, Hq+Hkv]
void gated_heads_backward(Ctx& c, Tensor dx, Tensor dwq, Tensor dwk, CTensor dqkv, CTensor x, CTensor wq,
                          CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape);

/// y = round(o sigmoid(gate))      y, o: [T, Hq dh]   x: [T, (2Hq+2Hkv)dh], of which the gates are read
void output_gate_forward(Ctx& c, Tensor y, CTensor o, CTensor x, AttentionShape shape);

/// s = sigmoid(gate):   do = dy s,   dgate = dy o s (1 - s), into the columns of gates of dx
/// do: [T, Hq dh], may be the memory of dy   dx, x: [T, (2Hq+2Hkv)dh]   dy, o: [T, Hq dh]
void output_gate_backward(Ctx& c, Tensor d_o, Tensor dx, CTensor dy, CTensor o, CTensor x,
                          AttentionShape shape);

}  // namespace temper
