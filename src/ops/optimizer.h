#pragma once
// AdamW on flat pieces of parameters, and the sum of squares behind the gradient norm. Gradients are in the
// accumulate dtype A of the weights (fp32 for fp32 and bf16, fp64 for fp64), and so are master weights and
// moments, but for two formats that take half of the memory:
//   master as u16, of bf16 weights: the low 16 bits of the fp32 master, which they and the weight determine
//   m, v as bf16, of bf16 and fp32 weights: rounded up or down at random, right on average. Of the new fp32
//   value x the bits are (bits(x) + r) >> 16; r has 16 bits, of word n mod 4 of moment_words(seed, count,
//   n / 4) the low ones for m and the high ones for v; n = first_element + the element's index here
// Element by element: the bits do not depend on how parameters are cut into pieces.

#include "src/ops/dispatch.h"

namespace temper {

/// g = grad * grad_scale;   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
/// p = master (1 - lr weight_decay) - lr/(1 - beta1^count) * m / (sqrt(v / (1 - beta2^count)) + eps)
/// master = p;   weight = round_master(p);   p is of the unrounded m and v
/// weight: [n] storage   master: [n] in A, may be the memory of an fp32 or fp64 weight; or u16
/// m, v: [n] in A or bf16, both alike   grad: [n] in A
/// count is taken modulo 2^32 for r; with bf16 moments first_element is a multiple of 4
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
