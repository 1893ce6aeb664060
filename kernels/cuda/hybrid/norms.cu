// RMSNorm by 1 + w: the kernels of kernels/cuda/norm.cu with another weight.

#include "kernels/cuda/device/hybrid.cuh"
#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/norm_backward_rows.h"
#include "kernels/cuda/norm_rows.h"

namespace temper::cuda {

void offset_norm_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps) {
  normalize_rows<canonical::OffsetWeight>(ctx, y, {}, rstd, x, {}, w, eps);
}

void add_offset_norm_forward(Ctx& ctx, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
                             double eps) {
  normalize_rows<canonical::OffsetWeight>(ctx, y, sum, rstd, a, b, w, eps);
}

void offset_norm_backward(Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x, CTensor w,
                          CTensor rstd) {
  normalize_rows_backward<canonical::OffsetWeight>(ctx, dx, dw, dy, dresidual, x, w, rstd);
}

}  // namespace temper::cuda
