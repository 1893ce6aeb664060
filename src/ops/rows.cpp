#include "src/ops/rows.h"

namespace temper {

void gather_rows(Ctx& c, Tensor y, CTensor x, CTensor index) {
  CHECK_SHAPE(index, y.dim(0));
  CHECK_SHAPE(y, index.dim(0), x.dim(1));
  if (index.dim(0) == 0) return;
  DISPATCH(c, gather_rows, y, x, index);
}

void scatter_rows(Ctx& c, Tensor y, CTensor x, CTensor index) {
  CHECK_SHAPE(index, x.dim(0));
  CHECK_SHAPE(x, index.dim(0), y.dim(1));
  if (index.dim(0) == 0) return device::fill(c.lane, y.raw(), 0, y.bytes());
  DISPATCH(c, scatter_rows, y, x, index);
}

void copy_columns(Ctx& c, Tensor to, int64_t to_column, CTensor from, int64_t from_column, int64_t columns) {
  CHECK_SHAPE(to, from.dim(0), to.dim(1));
  CHECK_SHAPE(from, to.dim(0), from.dim(1));
  CHECK(to.dtype == from.dtype && columns >= 0 && to_column >= 0 && to_column + columns <= to.dim(1) &&
            from_column >= 0 && from_column + columns <= from.dim(1),
        "columns {} to {} of {} {} copied to {} of {} {}", from_column, from_column + columns,
        from.shape_text(), dtype_name(from.dtype), to_column, to.shape_text(), dtype_name(to.dtype));
  if (to.dim(0) == 0 || columns == 0) return;
  DISPATCH(c, copy_columns, to, to_column, from, from_column, columns);
}

void join_columns(Ctx& c, Tensor y, CTensor parts, CTensor own, int64_t own_part) {
  const int64_t n = own.dim(0), width = own.dim(1), count = width > 0 ? y.dim(1) / width : 0;
  CHECK_SHAPE(y, n, count * width);
  CHECK_SHAPE(parts, count * n, width);
  CHECK(own_part >= 0 && own_part < count && parts.dtype == y.dtype && own.dtype == y.dtype,
        "part {} of {}: {} and {} joined to {}", own_part, count, dtype_name(own.dtype),
        dtype_name(parts.dtype), dtype_name(y.dtype));
  if (n > 0) DISPATCH(c, join_columns, y, parts, own, own_part);
}

}  // namespace temper
