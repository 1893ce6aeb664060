#pragma once
// RMSNorm layer: y = w * (x / sqrt(mean(x^2) + eps)), or with 1 + w in the place of w.

#include "src/nn/keep.h"
#include "src/nn/parameter.h"
#include "src/ops/hybrid/offset_norm.h"
#include "src/ops/norm.h"

namespace temper {

struct NormSaved {
  CTensor x;    // [T, D]
  Tensor rstd;  // [T]
};

class Norm {
 public:
  /// `offset`: by 1 + w.
  Norm(Parameter& weight, double eps, bool offset = false) : weight_(&weight), eps_(eps), offset_(offset) {}

  /// y = norm of sum = a + b; without b, of sum as it is. y and sum are the caller's; backward reads sum.
  void forward_residual(Ctx& c, Tensor y, Tensor sum, CTensor a, CTensor b, NormSaved* saved,
                        const Keep& keep = {}) const {
    Tensor rstd = keep.for_products(c).make({sum.dim(0)}, accumulate_dtype(sum.dtype));
    if (sum.dim(0) == 0)
      ;  // a rank that has no token of the batch
    else if (b.empty())
      normalize(c, y, rstd, sum);
    else if (offset_)
      add_offset_norm_forward(c, y, sum, rstd, a, b, weight_->value, eps_);
    else
      add_rmsnorm_forward(c, y, sum, rstd, a, b, weight_->value, eps_);
    if (saved) *saved = {sum, rstd};
  }
  /// The y of a forward again, from what it saved, in scratch.
  Tensor again(Ctx& c, const NormSaved& saved) const {
    const Tensor y = c.scratch.like(saved.x), rstd = c.scratch.like(saved.rstd);
    if (y.dim(0) > 0) normalize(c, y, rstd, saved.x);
    return y;
  }
  /// dx is the caller's, and may be the memory of dy or of dresidual: the gradient that goes past the norm,
  /// or none.
  void backward_into(Ctx& c, Tensor dx, CTensor dy, CTensor dresidual, const NormSaved& saved) const {
    if (dx.dim(0) == 0) return;
    const auto backward = offset_ ? offset_norm_backward : rmsnorm_backward;
    backward(c, dx, weight_->grad_sum_beside(c), dy, dresidual, saved.x, weight_->value, saved.rstd);
  }

 private:
  void normalize(Ctx& c, Tensor y, Tensor rstd, CTensor x) const {
    const auto forward = offset_ ? offset_norm_forward : rmsnorm_forward;
    forward(c, y, rstd, x, weight_->value, eps_);
  }

  Parameter* weight_;
  double eps_;
  bool offset_;
};

}  // namespace temper
