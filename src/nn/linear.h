#pragma once
// y = x W^T (+ b), W [out, in] as stored by Hugging Face. Backward returns dx and adds to the weight
// gradients.

#include "src/core/ctx.h"
#include "src/nn/parameter.h"
#include "src/ops/glu.h"
#include "src/ops/linear.h"

namespace temper {

class Linear {
 public:
  explicit Linear(Parameter& weight, Parameter* bias = nullptr) : weight_(&weight), bias_(bias) {}

  Tensor forward(Ctx& c, CTensor x) const {
    Tensor y = c.scratch.make({x.dim(0), weight_->value.dim(0)}, x.dtype);
    forward_into(c, y, x);
    return y;
  }
  void forward_into(Ctx& c, Tensor y, CTensor x) const {
    linear_forward(c, y, x, weight_->value, bias_ ? CTensor(bias_->value) : CTensor{});
  }
  /// a = SwiGLU of the product, whose first half of outputs is the gate.
  void forward_swiglu(Ctx& c, Tensor a, CTensor x) const {
    linear_swiglu_forward(c, a, x, weight_->value, bias_ ? CTensor(bias_->value) : CTensor{});
  }
  int64_t outputs() const { return weight_->value.dim(0); }
  Tensor backward(Ctx& c, CTensor dy, CTensor x) const {
    linear_backward_weight(c, weight_->grad, dy, x);
    if (bias_) linear_backward_bias(c, bias_->grad, dy);
    Tensor dx = c.scratch.make({x.dim(0), x.dim(1)}, x.dtype);
    linear_backward_input(c, dx, dy, weight_->value);
    return dx;
  }

 private:
  Parameter* weight_;
  Parameter* bias_;
};

}  // namespace temper
