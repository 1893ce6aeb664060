#pragma once
// Selecting rows: the head works on the rows that have a target only.

#include "src/ops/dispatch.h"

namespace temper {

/// y[i,:] = x[index[i],:]      y: [n, D]  x: [T, D]  index: [n] i32, each in [0, T)
void gather_rows(Ctx& c, Tensor y, CTensor x, CTensor index);

/// y = 0, then y[index[i],:] = x[i,:]      y: [T, D]  x: [n, D]  index: [n] i32, distinct
void scatter_rows(Ctx& c, Tensor y, CTensor x, CTensor index);

}  // namespace temper
