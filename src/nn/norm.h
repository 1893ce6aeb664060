#pragma once
// RMSNorm layer: y = w * (x / sqrt(mean(x^2) + eps)).

#include "src/nn/keep.h"
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

  /// y = norm of sum = a + b; without b, of sum as it is. y and sum are the caller's; backward reads sum.
  void forward_residual(Ctx& c, Tensor y, Tensor sum, CTensor a, CTensor b, NormSaved* saved,
                        const Keep& keep = {}) const {
    Tensor rstd = keep.for_products(c).make({sum.dim(0)}, accumulate_dtype(sum.dtype));
    if (sum.dim(0) == 0)
      ;  // a rank that has no token of the batch
    else if (b.empty())
      rmsnorm_forward(c, y, rstd, sum, weight_->value, eps_);
    else
      add_rmsnorm_forward(c, y, sum, rstd, a, b, weight_->value, eps_);
    if (saved) *saved = {sum, rstd};
  }
  /// The y of a forward again, from what it saved, in scratch.
  Tensor again(Ctx& c, const NormSaved& saved) const {
    const Tensor y = c.scratch.like(saved.x), rstd = c.scratch.like(saved.rstd);
    if (y.dim(0) == 0) return y;
    rmsnorm_forward(c, y, rstd, saved.x, weight_->value, eps_);
    return y;
  }
  /// dx is the caller's, and may be the memory of dy or of dresidual: the gradient that goes past the norm,
  /// or none.
  void backward_into(Ctx& c, Tensor dx, CTensor dy, CTensor dresidual, const NormSaved& saved) const {
    if (dx.dim(0) == 0) return;
    rmsnorm_backward(c, dx, weight_->grad_sum_beside(c), dy, dresidual, saved.x, weight_->value, saved.rstd);
  }

 private:
  Parameter* weight_;
  double eps_;
};

}  // namespace temper
