#pragma once
// AdamW on flat pieces of parameters, and the sum of squares behind the gradient norm. Master weights,
// moments and gradients are in the accumulate dtype A of the weights (fp32 for fp32 and bf16, fp64 for fp64).
// Element by element: the bits do not depend on how parameters are cut into pieces.

#include "src/ops/dispatch.h"

namespace temper {

/// g = grad * grad_scale;   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
/// p = master (1 - lr weight_decay) - lr/(1 - beta1^count) * m / (sqrt(v / (1 - beta2^count)) + eps)
/// master = p;   weight = round_master(p)
/// weight: [n] storage   master: [n] in A, may be the memory of an fp32 or fp64 weight   m, v, grad: [n] in A
/// decays: the elements that weight_decay is for, ascending; without it for all others
void adamw_step(Ctx& c, Tensor weight, Tensor master, Tensor m, Tensor v, CTensor grad,
                std::span<const FlatRange> decays, AdamwStep step);

/// weight = master; in bf16 (bits + 0x8000) >> 16: nearest, ties away from zero, so that the weight and the
/// low 16 bits of the master together determine the master weight: [n] storage   master: [n] in A, may be the
/// same memory
void round_master(Ctx& c, Tensor weight, CTensor master);

/// sum += the sum of x^2, in fp64, in an order that depends on the number of elements only
/// sum: [1] fp64   x: any shape
void sum_of_squares(Ctx& c, Tensor sum, CTensor x);

}  // namespace temper
