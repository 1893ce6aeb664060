#include "src/ops/linear.h"

#include "src/ops/product_times.h"

#ifdef TEMPER_CUDA
#include "kernels/cuda/product_times.h"
#endif

namespace temper {

void linear_forward(Ctx& c, Tensor y, CTensor x, CTensor w, CTensor bias) {
  CHECK_SHAPE(x, y.dim(0), w.dim(1));
  CHECK_SHAPE(w, y.dim(1), x.dim(1));
  CHECK_SHAPE(y, x.dim(0), w.dim(0));
  if (!bias.empty()) CHECK_SHAPE(bias, w.dim(0));
  CHECK(x.dim(1) > 0, "a sum over no features");
  DISPATCH(c, linear_forward, y, x, w, bias);
}

void linear_backward_input(Ctx& c, Tensor dx, CTensor dy, CTensor w) {
  CHECK_SHAPE(dx, dy.dim(0), w.dim(1));
  CHECK_SHAPE(w, dy.dim(1), dx.dim(1));
  CHECK_SHAPE(dy, dx.dim(0), w.dim(0));
  CHECK(dx.dtype == dy.dtype || dx.dtype == accumulate_dtype(dy.dtype), "dx is {}, dy is {}",
        dtype_name(dx.dtype), dtype_name(dy.dtype));
  DISPATCH(c, linear_backward_input, dx, dy, w);
}

void linear_backward_weight(Ctx& c, Tensor dw, CTensor dy, CTensor x, GradWrite write) {
  CHECK_SHAPE(dw, dy.dim(1), x.dim(1));
  CHECK_SHAPE(dy, x.dim(0), dw.dim(0));
  CHECK_SHAPE(x, dy.dim(0), dw.dim(1));
  DISPATCH(c, linear_backward_weight, dw, dy, x, write);
}

void linear_backward_bias(Ctx& c, Tensor db, CTensor dy) {
  CHECK_SHAPE(db, dy.dim(1));
  CHECK_SHAPE(dy, dy.dim(0), db.dim(0));
  DISPATCH(c, linear_backward_bias, db, dy);
}

std::optional<LinearTimes> time_linear([[maybe_unused]] Ctx& c, [[maybe_unused]] int64_t T,
                                       [[maybe_unused]] int64_t N, [[maybe_unused]] int64_t K) {
#ifdef TEMPER_CUDA
  if (c.device == Device::cuda) return cuda::time_linear(c, T, N, K);
#endif
  return std::nullopt;
}

}  // namespace temper
