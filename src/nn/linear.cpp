#include "src/nn/linear.h"

#include "src/nn/tensor_parallel.h"
#include "src/ops/glu.h"
#include "src/ops/linear.h"

namespace temper {

Linear::Linear(Parameter& weight, Parameter* bias, const Splits& splits, Parallel parallel)
    : weight_(&weight), bias_(bias), splits_(splits), parallel_(parallel) {
  CHECK(!split() || weight.spec.shard == Shard::rows, "{} is not sharded and split over {} ranks",
        weight.spec.name, splits.tp_ranks());
  CHECK(!bias || bias->spec.shard == weight.spec.shard, "{} and its bias are sharded otherwise",
        weight.spec.name);
}

Tensor Linear::forward(Ctx& c, const CTensor& x, Arena& memory) const {
  const Tensor y = memory.make({x.dim(0), outputs()}, x.dtype);
  forward_into(c, y, x);
  return y;
}

void Linear::forward_into(Ctx& c, const Tensor& y, const CTensor& x) const {
  if (!gathers()) return multiply(c, y, x);
  ArenaScope scope(c.scratch);
  const Tensor mine = c.scratch.make({x.dim(0), weight_->value.dim(0)}, x.dtype);
  multiply(c, mine, whole_input(c, x));
  gather_columns(c, *splits_.tp, y, mine);
}

void Linear::multiply(Ctx& c, const Tensor& y, const CTensor& x) const {
  linear_forward(c, y, x, weight_->value, bias_ ? CTensor(bias_->value) : CTensor{});
}

void Linear::forward_swiglu(Ctx& c, const Tensor& a, const CTensor& x) const {
  CHECK(!gathers(), "{} gathers its outputs", weight_->spec.name);
  linear_swiglu_forward(c, a, x, weight_->value, bias_ ? CTensor(bias_->value) : CTensor{});
}

CTensor Linear::whole_input(Ctx& c, const CTensor& x) const {
  if (!gathers()) return x;
  const Tensor whole = c.scratch.make({x.dim(0), weight_->value.dim(1)}, x.dtype);
  gather_columns(c, *splits_.tp, whole, x);
  return whole;
}

/// The columns of dy that belong to this rank's rows of W.
CTensor Linear::own_outputs(Ctx& c, const CTensor& dy) const {
  return gathers() ? own_columns(c, *splits_.tp, dy) : dy;
}

Tensor Linear::backward_input(Ctx& c, const CTensor& dy) const {
  const int64_t rows = dy.dim(0), inputs = weight_->value.dim(1);
  const Tensor dx = c.scratch.make({rows, gathers() ? inputs / splits_.tp_ranks() : inputs}, dy.dtype);
  ArenaScope scope(c.scratch);
  if (!split()) {
    linear_backward_input(c, dx, dy, weight_->value);
    return dx;
  }
  const Tensor part = c.scratch.make({rows, inputs}, accumulate_dtype(dy.dtype));
  linear_backward_input(c, part, own_outputs(c, dy), weight_->value);
  if (gathers())
    sum_own_columns(c, *splits_.tp, dx, part);
  else
    sum_parts(c, *splits_.tp, dx, part);
  return dx;
}

void Linear::backward_weight(Ctx& c, const CTensor& dy, const CTensor& x) const {
  // All ranks of a split take part in the exchanges of the input.
  if (!weight_->has_grad()) return;
  ArenaScope scope(c.scratch);
  const CTensor own = own_outputs(c, dy), whole = whole_input(c, x);
  linear_backward_weight(c, weight_->grad, own, whole, weight_->take_write());
  if (bias_) linear_backward_bias(c, bias_->grad_sum(c.lane), own);
}

}  // namespace temper
