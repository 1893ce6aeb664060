// Which kernel computes a grouped product.

#include "kernels/cuda/experts_linear.h"

namespace temper::cuda {

void multiply_experts(Ctx& ctx, const ExpertProduct& p) {
  const bool sums_rows = p.all.kind == ProductKind::weight_gradient;
  if (p.all.M == 0 || p.all.N == 0 || (sums_rows && p.rows() == 0 && p.all.add)) return;
  multiply_experts_plain(ctx.lane, p);
}

namespace {
ExpertProduct of_experts(const Product& all, const CTensor& offsets) {
  return {all, offsets.as<int32_t>(), static_cast<int>(offsets.dim(0) - 1)};
}
}  // namespace

void expert_linear_forward(Ctx& ctx, Tensor y, CTensor x, CTensor w, CTensor offsets) {
  const int64_t R = x.dim(0), N = y.dim(1), K = x.dim(1);
  multiply_experts(ctx,
                   of_experts({y.raw(), x.data, w.data, nullptr, R, N, K, N, x.dtype, y.dtype}, offsets));
}

void expert_linear_backward_input(Ctx& ctx, Tensor dx, CTensor dy, CTensor w, CTensor offsets) {
  const int64_t R = dy.dim(0), N = dy.dim(1), K = dx.dim(1);
  multiply_experts(ctx, of_experts({dx.raw(), dy.data, w.data, nullptr, R, K, N, K, dy.dtype, dx.dtype,
                                    ProductKind::input_gradient},
                                   offsets));
}

void expert_linear_backward_weight(Ctx& ctx, Tensor dw, CTensor dy, CTensor x, CTensor offsets,
                                   GradWrite write) {
  const int64_t R = dy.dim(0), N = dy.dim(1), K = x.dim(1);
  multiply_experts(ctx, of_experts({dw.raw(), dy.data, x.data, nullptr, N, K, R, K, dy.dtype, dw.dtype,
                                    ProductKind::weight_gradient, write == GradWrite::add},
                                   offsets));
}

}  // namespace temper::cuda
