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

}  // namespace temper
