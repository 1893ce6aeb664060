#include "src/ops/hybrid/offset_norm.h"

#include "src/ops/hybrid/dispatch.h"

namespace temper {
namespace {

void check_types(const CTensor& x, const CTensor& w, const CTensor& rstd) {
  CHECK_SHAPE(w, x.dim(1));
  CHECK_SHAPE(rstd, x.dim(0));
  CHECK(w.dtype == x.dtype, "w is {}, x is {}", dtype_name(w.dtype), dtype_name(x.dtype));
  CHECK(rstd.dtype == accumulate_dtype(x.dtype), "rstd is {}, x is {}", dtype_name(rstd.dtype),
        dtype_name(x.dtype));
}

}  // namespace

void offset_norm_forward(Ctx& c, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps) {
  CHECK_SHAPE(y, x.dim(0), x.dim(1));
  check_types(x, w, rstd);
  DISPATCH(c, offset_norm_forward, y, rstd, x, w, eps);
}

void add_offset_norm_forward(Ctx& c, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
                             double eps) {
  for (const CTensor& t : {CTensor(y), CTensor(sum), b}) CHECK_SHAPE(t, a.dim(0), a.dim(1));
  check_types(a, w, rstd);
  DISPATCH(c, add_offset_norm_forward, y, sum, rstd, a, b, w, eps);
}

void offset_norm_backward(Ctx& c, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x, CTensor w,
                          CTensor rstd) {
  for (const CTensor& t : {CTensor(dx), dy}) CHECK_SHAPE(t, x.dim(0), x.dim(1));
  if (!dresidual.empty()) CHECK_SHAPE(dresidual, x.dim(0), x.dim(1));
  CHECK_SHAPE(dw, x.dim(1));
  check_types(x, w, rstd);
  DISPATCH(c, offset_norm_backward, dx, dw, dy, dresidual, x, w, rstd);
}

}  // namespace temper
