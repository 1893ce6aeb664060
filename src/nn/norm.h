#pragma once
// RMSNorm layer: y = w * (x / sqrt(mean(x^2) + eps)).

#include "src/core/ctx.h"
#include "src/nn/parameter.h"
#include "src/ops/norm.h"

namespace temper {

struct NormSaved {
  CTensor x;    // [T, D]
  Tensor rstd;  // [T]
};

class Norm {
 public:
  Norm(Parameter& weight, double eps) : weight_(&weight), eps_(eps) {}

  /// Norm of sum = a + b, which is the caller's; without b, of sum as it is.
  Tensor forward_residual(Ctx& c, Tensor sum, CTensor a, CTensor b, NormSaved* saved) const {
    Tensor y = c.scratch.like(sum);
    Tensor rstd = c.scratch.make({sum.dim(0)}, accumulate_dtype(sum.dtype));
    if (b.empty())
      rmsnorm_forward(c, y, rstd, sum, weight_->value, eps_);
    else
      add_rmsnorm_forward(c, y, sum, rstd, a, b, weight_->value, eps_);
    if (saved) *saved = {sum, rstd};
    return y;
  }
  Tensor backward(Ctx& c, CTensor dy, const NormSaved& saved) const {
    Tensor dx = c.scratch.like(saved.x);
    rmsnorm_backward(c, dx, weight_->grad, dy, saved.x, weight_->value, saved.rstd);
    return dx;
  }

 private:
  Parameter* weight_;
  double eps_;
};

}  // namespace temper
