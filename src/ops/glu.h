#pragma once
// SwiGLU on the fused output of the gate and up projections: columns [0, F) are gate, [F, 2F) are up.

#include "src/ops/dispatch.h"

namespace temper {

/// a = round((g / (1 + e^-g)) * u)      a: [T, F]   gate_up: [T, 2F]
void swiglu_forward(Ctx& c, Tensor a, CTensor gate_up);

/// linear_forward (ops/linear.h) to gate_up, then swiglu_forward of it, which is not kept: the same bits.
/// a: [T, F]   x: [T, K]   w: [2F, K]   bias: [2F] or empty
void linear_swiglu_forward(Ctx& c, Tensor a, CTensor x, CTensor w, CTensor bias);

/// s = 1 / (1 + e^-g):   dg = da u s (1 + g (1 - s)),   du = da g s; overwritten
/// dgate_up, gate_up: [T, 2F], may be the same memory   da: [T, F]
void swiglu_backward(Ctx& c, Tensor dgate_up, CTensor da, CTensor gate_up);

}  // namespace temper
