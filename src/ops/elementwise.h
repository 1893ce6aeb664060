#pragma once
// Element by element operations.

#include "src/ops/dispatch.h"

namespace temper {

/// y = round(a + b), any equal shapes; y may be the memory of a or of b
void add(Ctx& c, Tensor y, CTensor a, CTensor b);

/// y[i] = round(((x[0,i] + x[1,i]) + x[2,i]) + ...) in the accumulate dtype A: in ascending order of the
/// parts, which are those of ranks.      y: [n]   x: [R, n], of y's dtype or in A
/// `own` [n], of x's dtype, is the part number `own_part` in place of x's, which is not read; y may be its
/// memory. None: -1. GradWrite::add: y[i] = round(y[i] + that sum).
void sum_in_order(Ctx& c, Tensor y, CTensor x, CTensor own = {}, int64_t own_part = -1,
                  GradWrite write = GradWrite::first);

/// y = x exactly: bf16 in fp32.      y: [n] in the accumulate dtype of x   x: [n]
void widen(Ctx& c, Tensor y, CTensor x);

}  // namespace temper
