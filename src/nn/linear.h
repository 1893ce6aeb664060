#pragma once
// y = x W^T (+ b), W [out, in] as stored by Hugging Face. Backward comes in two halves, of which the one for
// the weights may run later: it adds to their gradients. Over tp ranks (Shard::rows) each has its rows of
// every part of W; outputs are gathered, so that y has the bits of one rank; dx is the sum over ranks in rank
// order.

#include "src/core/ctx.h"
#include "src/nn/parameter.h"
#include "src/nn/splits.h"

namespace temper {

class Linear {
 public:
  explicit Linear(Parameter& weight, Parameter* bias = nullptr, const Splits& splits = {});

  /// y [T, outputs()] in `memory`.
  Tensor forward(Ctx& c, const CTensor& x, Arena& memory) const;
  /// y is the caller's.
  void forward_into(Ctx& c, const Tensor& y, const CTensor& x) const;
  /// a = SwiGLU of the product, whose first half of outputs is the gate.
  void forward_swiglu(Ctx& c, const Tensor& a, const CTensor& x) const;
  /// dx [T, in] in scratch.
  Tensor backward_input(Ctx& c, const CTensor& dy) const;
  void backward_weight(Ctx& c, const CTensor& dy, const CTensor& x) const;

  /// Of all ranks together.
  int64_t outputs() const { return weight_->spec.shape[0]; }

 private:
  bool split() const { return splits_.tp_ranks() > 1; }
  void multiply(Ctx& c, const Tensor& y, const CTensor& x) const;
  CTensor own_outputs(Ctx& c, const CTensor& dy) const;

  Parameter* weight_;
  Parameter* bias_;
  Splits splits_;
};

}  // namespace temper
