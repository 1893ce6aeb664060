#pragma once
// What adapters add to a linear layer (nn/adapter_config.h), forward and backward:
//   u = x A^T    y' = round(y + scale u B^T)
//   du = scale dy B    dA += du^T x    dB += scale dy^T u    dx' = round(dx + du A)
// A has the rows of all modules that the layer's product is made of, B the outputs of each. u is kept for
// backward where a layer keeps its products, else computed again: the bits of a row are its own.
// Over tp ranks A is whole on each, and B has the rows that the layer's weights have. Column parallel ranks
// have gradients of A from own outputs; row parallel ones those of own columns (ParamSpec::grad_by_columns).

#include "src/core/ctx.h"
#include "src/nn/parameter.h"
#include "src/nn/splits.h"

namespace temper {

class Adapter {
 public:
  /// None.
  Adapter() = default;
  /// `base`: the weights of the layer. `on` is asked before each use; all of them outlive it.
  Adapter(Parameter& a, Parameter& b, const Parameter& base, double scale, const bool& on);

  bool active() const { return a_ != nullptr && *on_; }
  /// Memory for u of so many tokens.
  Tensor make_low(Arena& memory, int64_t tokens) const {
    return memory.make({tokens, a_->value.dim(0)}, a_->value.dtype);
  }
  /// y = x w^T + bias, and u: what is to be added to y.
  LowProduct multiply(Ctx& c, const Tensor& y, const Tensor& u, const CTensor& x, const CTensor& w,
                      const CTensor& bias) const;
  /// Adds to y [T, own outputs] of x [T, all inputs].
  void add_to(Ctx& c, const Tensor& y, const CTensor& x) const;
  /// y [T, all outputs]: row parallel, with B of all ranks.
  void add_to_whole(Ctx& c, Collectives& tp, const Tensor& y, const CTensor& x) const;
  /// dx [T, all inputs], in dy's type or unrounded, from dy [T, own outputs]; adds to the gradients. u may be
  /// empty.
  void backward(Ctx& c, const Tensor& dx, const CTensor& dy, const CTensor& x, const CTensor& u = {}) const;
  /// The gradient of what SwiGLU made a of, from da and what adapters add to it. da is scratch afterwards.
  void backward_swiglu(Ctx& c, const Tensor& dgate_up, const Tensor& da, const CTensor& dy, const CTensor& a,
                       const CTensor& gate_up, const CTensor& u) const;
  /// Row parallel: dx and x have own inputs, dy all outputs.
  void backward_by_columns(Ctx& c, Collectives& tp, const Tensor& dx, const CTensor& dy,
                           const CTensor& x) const;

 private:
  bool has_gradients() const { return a_->has_grad() && b_->has_grad(); }
  CTensor weights(Ctx& c) const;
  CTensor weights_of_all(Ctx& c, Collectives& tp) const;
  LowProduct low_of(Ctx& c, const CTensor& x) const;
  Tensor backward_apart(Ctx& c, const CTensor& dy, const CTensor& x, const CTensor& u) const;
  Tensor backward_low(Ctx& c, const CTensor& dy, const CTensor& w) const;
  void add_gradient_of_outputs(Ctx& c, const CTensor& dy, const CTensor& u) const;

  Parameter *a_ = nullptr, *b_ = nullptr;
  AdapterBlocks blocks_ = {};
  int64_t outputs_ = 0;  // of this rank
  double scale_ = 0;
  const bool* on_ = nullptr;
};

}  // namespace temper
