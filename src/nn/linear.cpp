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

int64_t Linear::output_rows(const CTensor& x, const StreamRows& stream) const {
  if (!splits_.shares(stream)) return x.dim(0);
  return gathers() ? splits_.own_tokens(stream).size() : stream.tokens;
}

Tensor Linear::forward(Ctx& c, const CTensor& x, Arena& memory, const StreamRows& stream) const {
  const Tensor y = memory.make({output_rows(x, stream), outputs()}, x.dtype);
  forward_into(c, y, x, stream);
  return y;
}

void Linear::forward_into(Ctx& c, const Tensor& y, const CTensor& x, const StreamRows& stream) const {
  ArenaScope scope(c.scratch);
  if (!gathers()) return multiply(c, y, whole_input(c, x, stream));
  const Tensor mine = c.scratch.make({x.dim(0), weight_->value.dim(0)}, x.dtype);
  multiply(c, mine, whole_input(c, x, stream));
  if (splits_.shares(stream))
    columns_to_tokens(c, *splits_.tp, y, mine);
  else
    gather_columns(c, *splits_.tp, y, mine);
}

void Linear::multiply(Ctx& c, const Tensor& y, const CTensor& x) const {
  linear_forward(c, y, x, weight_->value, bias_ ? CTensor(bias_->value) : CTensor{});
}

void Linear::forward_swiglu(Ctx& c, const Tensor& a, const CTensor& x, const StreamRows& stream) const {
  CHECK(!gathers(), "{} gathers its outputs", weight_->spec.name);
  ArenaScope scope(c.scratch);
  linear_swiglu_forward(c, a, whole_input(c, x, stream), weight_->value,
                        bias_ ? CTensor(bias_->value) : CTensor{});
}

CTensor Linear::whole_input(Ctx& c, const CTensor& x, const StreamRows& stream) const {
  if (!gathers() && !splits_.shares(stream)) return x;
  const Tensor whole = c.scratch.make({gathers() ? x.dim(0) : stream.tokens, weight_->value.dim(1)}, x.dtype);
  if (gathers())
    gather_columns(c, *splits_.tp, whole, x);
  else
    gather_tokens(c, *splits_.tp, whole, x);
  return whole;
}

CTensor Linear::own_outputs(Ctx& c, const CTensor& dy, const StreamRows& stream) const {
  if (!gathers()) return dy;
  if (!splits_.shares(stream)) return own_columns(c, *splits_.tp, dy);
  const Tensor own = c.scratch.make({stream.tokens, weight_->value.dim(0)}, dy.dtype);
  tokens_to_columns(c, *splits_.tp, own, dy);
  return own;
}

Tensor Linear::backward_input(Ctx& c, const CTensor& own_dy, const StreamRows& stream) const {
  const int64_t tokens = own_dy.dim(0), inputs = weight_->value.dim(1);
  const bool to_stream = splits_.shares(stream) && !gathers();
  const Tensor dx = c.scratch.make({to_stream ? splits_.own_tokens(stream).size() : tokens,
                                    gathers() ? inputs / splits_.tp_ranks() : inputs},
                                   own_dy.dtype);
  if (!split()) {
    linear_backward_input(c, dx, own_dy, weight_->value);
    return dx;
  }
  ArenaScope scope(c.scratch);
  const Tensor part = c.scratch.make({tokens, inputs}, accumulate_dtype(own_dy.dtype));
  linear_backward_input(c, part, own_dy, weight_->value);
  if (gathers())
    sum_own_columns(c, *splits_.tp, dx, part);
  else if (to_stream)
    sum_own_tokens(c, *splits_.tp, dx, part, "gradient of an input, sum over tp for own tokens");
  else
    sum_parts(c, *splits_.tp, dx, part);
  return dx;
}

void Linear::backward_weight(Ctx& c, const CTensor& own_dy, const CTensor& x,
                             const StreamRows& stream) const {
  // All ranks of a split take part in the exchanges of the input.
  if (!weight_->has_grad()) return;
  ArenaScope scope(c.scratch);
  linear_backward_weight(c, weight_->grad, own_dy, whole_input(c, x, stream), weight_->take_write());
  if (bias_) linear_backward_bias(c, bias_->grad_sum(c.lane), own_dy);
}

}  // namespace temper
