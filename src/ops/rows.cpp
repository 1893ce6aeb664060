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

}  // namespace temper
