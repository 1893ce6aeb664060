#pragma once
// y = x W^T (+ b), W [out, in] as stored by Hugging Face. Over tp ranks each has rows of W, and what goes in
// and out is cut by columns as nn/parallel/tensor_parallel.h says: the bits of y are those of one rank.
// Adapters, where it has them, add to the rounded y (nn/adapter.h); then nothing trains W and b.
// Exchanges go on beside products where they can (on the lane of Collectives::beside): forward multiplies own
// tokens while those of others arrive; backward copies what the second of its two products needs beside the
// first one.

#include <functional>

#include "src/core/ctx.h"
#include "src/nn/adapter.h"
#include "src/nn/keep.h"
#include "src/nn/parameter.h"
#include "src/nn/splits.h"

namespace temper {

enum class Parallel { column, row };

class Linear {
 public:
  explicit Linear(Parameter& weight, Parameter* bias = nullptr, const Splits& splits = {},
                  Parallel parallel = Parallel::column, const Adapter& adapter = {});

  /// What adapters make of x, for the backward that reads it instead of making it again: filled by forward;
  /// empty where nothing is kept.
  Tensor make_low(const Keep& keep, const CTensor& x, const StreamRows& stream) const;
  /// y [T, outputs()] in `memory`. `stream`: of what is whole, x or y, own tokens, if they are shared.
  Tensor forward(Ctx& c, const CTensor& x, Arena& memory, const StreamRows& stream = {},
                 const Tensor& low = {}) const;
  /// y is the caller's.
  void forward_into(Ctx& c, const Tensor& y, const CTensor& x, const StreamRows& stream = {},
                    const Tensor& low = {}) const;
  /// a = SwiGLU of the product, whose first half of outputs is the gate. Column parallel alone.
  void forward_swiglu(Ctx& c, const Tensor& a, const CTensor& x, const StreamRows& stream = {}) const;
  /// The same, with the product, which backward reads, in `memory`.
  Tensor forward_swiglu_kept(Ctx& c, const Tensor& a, const CTensor& x, Arena& memory,
                             const StreamRows& stream, const Tensor& low) const;
  /// dx, of x's shape, in scratch, from dy of y's; adds to the gradients of weight and bias. Row parallel:
  /// to those of the weight's columns (ParamSpec::grad_by_columns).
  Tensor backward(Ctx& c, const CTensor& dy, const CTensor& x, const StreamRows& stream = {},
                  const CTensor& low = {}) const;
  /// Where x is a, SwiGLU of gate_up: the gradient of gate_up, which may lie there.
  void backward_swiglu(Ctx& c, const Tensor& dgate_up, const CTensor& dy, const CTensor& a,
                       const CTensor& gate_up, const StreamRows& stream, const CTensor& low) const;

  /// Rows of y.
  int64_t output_rows(const CTensor& x, const StreamRows& stream = {}) const;
  /// Columns of y.
  int64_t outputs() const { return gathers() ? weight_->spec.shape[0] : weight_->value.dim(0); }

 private:
  bool split() const { return splits_.tp_ranks() > 1; }
  bool gathers() const { return split() && parallel_ == Parallel::row; }
  CTensor bias() const { return bias_ ? CTensor(bias_->value) : CTensor{}; }
  void multiply(Ctx& c, const Tensor& y, const CTensor& x) const;
  void multiply_adapted(Ctx& c, const Tensor& y, const CTensor& x, const Tensor& low) const;
  Tensor low_or_scratch(Ctx& c, const CTensor& x, const Tensor& low) const {
    return low.empty() ? adapter_.make_low(c.scratch, x.dim(0)) : low;
  }
  /// Some rows of y, of these tokens, from x.
  using Product = std::function<void(const FlatRange& tokens, const CTensor& x)>;
  void multiply_in_turn(Ctx& c, const CTensor& own_x, const StreamRows& stream, const Product& product,
                        const Tensor& y = {}) const;
  void multiply_own_tokens(Ctx& c, const Tensor& y, const CTensor& x) const;
  void add_bias_gradient(Ctx& c, const CTensor& own_dy) const;
  void backward_base(Ctx& c, const Tensor& dx, const CTensor& dy, const CTensor& x) const;
  void backward_by_rows(Ctx& c, const Tensor& dx, const CTensor& dy, const CTensor& x,
                        const StreamRows& stream, const CTensor& low) const;
  void backward_by_columns(Ctx& c, const Tensor& dx, const CTensor& dy, const CTensor& x,
                           const StreamRows& stream) const;
  CTensor whole_input(Ctx& c, const CTensor& x, const StreamRows& stream) const;

  Parameter* weight_;
  Parameter* bias_;
  Splits splits_;
  Parallel parallel_;
  Adapter adapter_;
};

}  // namespace temper
