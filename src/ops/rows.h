#pragma once
// Selecting rows: the head works on the rows that have a target only; and columns: ranks exchange those.

#include "src/ops/dispatch.h"

namespace temper {

/// y[i,:] = x[index[i],:]      y: [n, D]  x: [T, D]  index: [n] i32, each in [0, T)
void gather_rows(Ctx& c, Tensor y, CTensor x, CTensor index);

/// y = 0, then y[index[i],:] = x[i,:]      y: [T, D]  x: [n, D]  index: [n] i32, distinct
void scatter_rows(Ctx& c, Tensor y, CTensor x, CTensor index);

/// to[:, to_column + j] = from[:, from_column + j], 0 <= j < columns; the rest of `to` stays.
/// to: [n, D]  from: [n, E]
void copy_columns(Ctx& c, Tensor to, int64_t to_column, CTensor from, int64_t from_column, int64_t columns);

/// y[:, r w + j] = parts[r n:, j] of rows [r n, (r + 1) n), 0 <= r < R, 0 <= j < w: the columns of all ranks.
/// `own` is the part number `own_part` in place of that of `parts`, which is not read.
/// y: [n, R w]  parts: [R n, w]  own: [n, w]
void join_columns(Ctx& c, Tensor y, CTensor parts, CTensor own, int64_t own_part);

}  // namespace temper
