#pragma once
// What the low-rank adapters of a product y = x W^T take beside its linear products (src/ops/linear.h):
//   u = x A^T    z = u V^T, never rounded    y' = round(fma(scale, z, y))
// where V is block diagonal: the outputs of a block, which are those of one Hugging Face module, read that
// block's columns of u. What is not rounded is in the accumulate dtype; scale is rounded to it.

#include "src/ops/dispatch.h"

namespace temper {

/// y = x W^T + b and u = x A^T, the bits of two linear_forward
/// y: [T, N], u: [T, R], of x's dtype   x: [T, K]   w: [N, K]   bias: [N] or empty   a: [R, K]
void linear_pair_forward(Ctx& c, Tensor y, Tensor u, CTensor x, CTensor w, CTensor bias, CTensor a);

/// y = round(fma(scale, u V^T, y))
/// y: [T, N], of u's dtype or its accumulate dtype   u: [T, n r]   b: [M, r]   n: number of blocks
void adapter_forward(Ctx& c, Tensor y, const LowProduct& low);

/// adapter_forward of gate_up, which stays as it is, then swiglu_forward of that: the same bits
/// a: [T, F]   gate_up: [T, 2F]
void adapter_swiglu_forward(Ctx& c, Tensor a, CTensor gate_up, const LowProduct& low);

/// The same, but gate_up becomes what adapter_forward makes of it, for swiglu_backward
void adapter_swiglu_forward_kept(Ctx& c, Tensor a, Tensor gate_up, const LowProduct& low);

/// du = round(scale * (dy V))
/// du: [T, R], of dy's dtype   dy: [T, N]   v: [N, R]
void adapter_backward_low(Ctx& c, Tensor du, CTensor dy, CTensor v, double scale);

/// dx = round(dx + du A)
/// dx: [T, K], of du's dtype or its accumulate dtype   du: [T, R]   a: [R, K]
void adapter_backward_input(Ctx& c, Tensor dx, CTensor du, CTensor a);

/// adapter_backward_input of da, then swiglu_backward of that: the same bits. What da holds after is not
/// defined.
/// dgate_up, gate_up: [T, 2F], may be the same memory   da: [T, F], of du's dtype   du: [T, R]   a: [R, F]
void adapter_swiglu_backward(Ctx& c, Tensor dgate_up, Tensor da, CTensor du, CTensor a, CTensor gate_up);

/// w = V: w[to_i + j, i r + k] = b[from_i + j, k] in block i, 0 elsewhere
/// w: [N, n r]   b: [M, r], of w's dtype
void adapter_weights(Ctx& c, Tensor w, CTensor b, const AdapterBlocks& blocks);

/// da[k, n] += sum_t du[t, k] x[t, n]; as the first write, = instead
/// da: [R, K], in the accumulate dtype   du: [T, R]   x: [T, K]
void adapter_backward_a(Ctx& c, Tensor da, CTensor du, CTensor x, GradWrite write);

/// db[from_i + j, k] += round(scale * sum_t dy[t, to_i + j] u[t, i r + k]); as the first write, = instead
/// db: [M, r], in the accumulate dtype   dy: [T, N]   u: [T, n r]
void adapter_backward_b(Ctx& c, Tensor db, CTensor dy, CTensor u, double scale, const AdapterBlocks& blocks,
                        GradWrite write);

}  // namespace temper
