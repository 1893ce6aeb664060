#include "src/ops/elementwise.h"

namespace temper {

void add(Ctx& c, Tensor y, CTensor a, CTensor b) {
  CHECK(y.dims == a.dims && y.dims == b.dims, "shapes {}, {} and {}", y.shape_text(), a.shape_text(),
        b.shape_text());
  DISPATCH(c, add, y, a, b);
}

void sum_in_order(Ctx& c, Tensor y, CTensor x, CTensor own, int64_t own_part, GradWrite write) {
  CHECK_SHAPE(y, y.size());
  CHECK_SHAPE(x, x.dim(0), y.size());
  CHECK(x.dim(0) > 0 && (x.dtype == y.dtype || x.dtype == accumulate_dtype(y.dtype)),
        "a sum of {} parts of {} in {}", x.dim(0), dtype_name(x.dtype), dtype_name(y.dtype));
  CHECK(own_part < x.dim(0), "own part {} of {}", own_part, x.dim(0));
  if (own_part >= 0) {
    CHECK_SHAPE(own, y.size());
    CHECK(own.dtype == x.dtype, "own part of {} among {}", dtype_name(own.dtype), dtype_name(x.dtype));
  }
  DISPATCH(c, sum_in_order, y, x, own, own_part, write);
}

void widen(Ctx& c, Tensor y, CTensor x) {
  CHECK_SHAPE(y, x.dim(0));
  CHECK(y.dtype == accumulate_dtype(x.dtype), "{} widened to {}", dtype_name(x.dtype), dtype_name(y.dtype));
  DISPATCH(c, widen, y, x);
}

}  // namespace temper
