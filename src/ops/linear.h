#pragma once
// y = x W^T (+ b), W [out, in] as stored, and its three backward products. Storage: fp32, bf16 or fp64; the
// accumulate dtype A is fp32, or fp64 for fp64. Parameter gradients are in A.
// A row of y has the same bits for any T, any position in x and any number of threads.

#include "src/ops/dispatch.h"

namespace temper {

/// y[t,n] = sum_k x[t,k] w[n,k] + bias[n], one rounding
/// y: [T, N], of x's dtype or in A (unrounded)   x: [T, K]   w: [N, K]   bias: [N] or empty
void linear_forward(Ctx& c, Tensor y, CTensor x, CTensor w, CTensor bias);

/// dx[t,k] = sum_n dy[t,n] w[n,k], overwritten, one rounding
/// dx: [T, K], of dy's dtype or in A (unrounded: a part of a sum over ranks)   dy: [T, N]   w: [N, K]
void linear_backward_input(Ctx& c, Tensor dx, CTensor dy, CTensor w);

/// dw[n,k] += sum_t dy[t,n] x[t,k]; as the first write, = instead, whatever dw held
/// dw: [N, K] in A   dy: [T, N]   x: [T, K]
void linear_backward_weight(Ctx& c, Tensor dw, CTensor dy, CTensor x, GradWrite write);

/// db[n] += sum_t dy[t,n]      db: [N] in A   dy: [T, N]
void linear_backward_bias(Ctx& c, Tensor db, CTensor dy);

}  // namespace temper
