#pragma once
// RMSNorm whose weight is 1 + w, as Qwen3.5 has it: with one rounding, and none before the weight. Types and
// independence of rows as in ops/norm.h.

#include "src/core/ctx.h"

namespace temper {

/// y[t,:] = round((x[t,:] rstd[t]) (1 + w)),  rstd[t] = 1 / sqrt(mean(x[t,:]^2) + eps)
/// y, x: [T, D]   w: [D]   rstd: [T] in A, kept for backward
void offset_norm_forward(Ctx& c, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps);

/// sum = round(a + b), and the norm of sum.      y, sum, a, b: [T, D]   w: [D]   rstd: [T] in A
void add_offset_norm_forward(Ctx& c, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
                             double eps);

/// xh = x rstd, g = dy (1 + w):   dx = round(dresidual + rstd (g - xh mean(g xh)));   dw += sum_t dy xh
/// dx: [T, D], may be the memory of dy or dresidual   dw: [D] in A   dy, x: [T, D]
/// dresidual: [T, D], the gradient that goes past the norm, or empty   w: [D]   rstd: [T]
void offset_norm_backward(Ctx& c, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x, CTensor w,
                          CTensor rstd);

}  // namespace temper
