#include "src/nn/linear.h"

#include "src/nn/parallel/tensor_parallel.h"
#include "src/ops/adapters/adapter.h"
#include "src/ops/glu.h"
#include "src/ops/linear.h"

namespace temper {

Linear::Linear(Parameter& weight, Parameter* bias, const Splits& splits, Parallel parallel,
               const Adapter& adapter)
    : weight_(&weight), bias_(bias), splits_(splits), parallel_(parallel), adapter_(adapter) {
  CHECK(!split() || weight.spec.shard == Shard::rows, "{} is not sharded and split over {} ranks",
        weight.spec.name, splits.tp_ranks());
  CHECK(!bias || bias->spec.shard == weight.spec.shard, "{} and its bias are sharded otherwise",
        weight.spec.name);
}

int64_t Linear::output_rows(const CTensor& x, const StreamRows& stream) const {
  if (!splits_.shares(stream)) return x.dim(0);
  return gathers() ? splits_.own_tokens(stream).size() : stream.tokens;
}

/// Where x is whole here.
Tensor Linear::make_low(const Keep& keep, const CTensor& x, const StreamRows& stream) const {
  if (!adapter_.active() || !keep.products || gathers() || splits_.shares(stream)) return {};
  return adapter_.make_low(*keep.products, x.dim(0));
}

Tensor Linear::forward(Ctx& c, const CTensor& x, Arena& memory, const StreamRows& stream,
                       const Tensor& low) const {
  const Tensor y = memory.make({output_rows(x, stream), outputs()}, x.dtype);
  forward_into(c, y, x, stream, low);
  return y;
}

void Linear::forward_into(Ctx& c, const Tensor& y, const CTensor& x, const StreamRows& stream,
                          const Tensor& low) const {
  if (!split() || (!gathers() && !splits_.shares(stream))) return multiply_adapted(c, y, x, low);
  if (!gathers())
    return multiply_in_turn(
        c, x, stream,
        [&](const FlatRange& tokens, const CTensor& some) {
          multiply(c, rows(y, tokens.begin, tokens.end), some);
        },
        y);
  if (splits_.shares(stream)) return multiply_own_tokens(c, y, x);
  ArenaScope scope(c.scratch);
  const Tensor mine = c.scratch.make({x.dim(0), weight_->value.dim(0)}, x.dtype);
  multiply_adapted(c, mine, whole_input(c, x, stream), {});
  gather_columns(c, *splits_.tp, y, mine);
}

/// Column parallel: own tokens while those of others arrive. Adapters add to `y` when all are there: what
/// they take of scratch memory an exchange may be using before.
void Linear::multiply_in_turn(Ctx& c, const CTensor& own_x, const StreamRows& stream, const Product& product,
                              const Tensor& y) const {
  ArenaScope scope(c.scratch);
  const FlatRange own = splits_.own_tokens(stream);
  Ctx beside = splits_.tp->beside(c);
  beside.lane.follow(c.lane);
  const CTensor whole = whole_input(beside, own_x, stream);
  product(own, own_x);
  c.lane.follow(beside.lane);
  product({0, own.begin}, rows(whole, 0, own.begin));
  product({own.end, stream.tokens}, rows(whole, own.end, stream.tokens));
  if (adapter_.active()) adapter_.add_to(c, y, whole);
}

/// Row parallel: with whole weights, which are less than the columns of tokens in a micro-batch of many.
void Linear::multiply_own_tokens(Ctx& c, const Tensor& y, const CTensor& x) const {
  ArenaScope scope(c.scratch);
  Collectives& tp = *splits_.tp;
  const int64_t inputs = weight_->value.dim(1);
  const Tensor own_x = c.scratch.make({y.dim(0), inputs}, x.dtype),
               weights = c.scratch.make({outputs(), inputs}, x.dtype),
               biases = bias_ ? c.scratch.make({outputs()}, x.dtype) : Tensor{};
  tp.all_gather(c, weights, weight_->value, "weights, copied from their tp owners");
  if (bias_) tp.all_gather(c, biases, bias_->value, "biases, copied from their tp owners");
  columns_to_rows(c, tp, own_x, x, "columns, copied to the owners of their tokens over tp");
  linear_forward(c, y, own_x, weights, biases);
  if (adapter_.active()) adapter_.add_to_whole(c, tp, y, own_x);
}

void Linear::multiply(Ctx& c, const Tensor& y, const CTensor& x) const {
  linear_forward(c, y, x, weight_->value, bias());
}

/// With what adapters add.
void Linear::multiply_adapted(Ctx& c, const Tensor& y, const CTensor& x, const Tensor& low) const {
  if (!adapter_.active()) return multiply(c, y, x);
  ArenaScope scope(c.scratch);
  adapter_forward(c, y, adapter_.multiply(c, y, low_or_scratch(c, x, low), x, weight_->value, bias()));
}

void Linear::forward_swiglu(Ctx& c, const Tensor& a, const CTensor& x, const StreamRows& stream) const {
  CHECK(!gathers(), "{} gathers its outputs", weight_->spec.name);
  if (adapter_.active()) {
    ArenaScope scope(c.scratch);
    const Tensor gate_up = c.scratch.make({a.dim(0), outputs()}, x.dtype);
    if (!splits_.shares(stream))
      return adapter_swiglu_forward(
          c, a, gate_up, adapter_.multiply(c, gate_up, low_or_scratch(c, x, {}), x, weight_->value, bias()));
    forward_into(c, gate_up, x, stream);
    return swiglu_forward(c, a, gate_up);
  }
  const Product product = [&](const FlatRange& tokens, const CTensor& some) {
    linear_swiglu_forward(c, rows(a, tokens.begin, tokens.end), some, weight_->value, bias());
  };
  if (splits_.shares(stream)) return multiply_in_turn(c, x, stream, product);
  product({0, x.dim(0)}, x);
}

Tensor Linear::forward_swiglu_kept(Ctx& c, const Tensor& a, const CTensor& x, Arena& memory,
                                   const StreamRows& stream, const Tensor& low) const {
  if (gathers() || splits_.shares(stream) || !adapter_.active()) {
    const Tensor gate_up = forward(c, x, memory, stream);
    swiglu_forward(c, a, gate_up);
    return gate_up;
  }
  const Tensor gate_up = memory.make({a.dim(0), outputs()}, x.dtype);
  ArenaScope scope(c.scratch);
  adapter_swiglu_forward_kept(
      c, a, gate_up, adapter_.multiply(c, gate_up, low_or_scratch(c, x, low), x, weight_->value, bias()));
  return gate_up;
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

Tensor Linear::backward(Ctx& c, const CTensor& dy, const CTensor& x, const StreamRows& stream,
                        const CTensor& low) const {
  const Tensor dx = c.scratch.like(x);
  if (gathers()) {
    backward_by_columns(c, dx, dy, x, stream);
  } else if (split()) {
    backward_by_rows(c, dx, dy, x, stream, low);
  } else {
    backward_base(c, dx, dy, x);
    if (adapter_.active()) adapter_.backward(c, dx, dy, x, low);
  }
  return dx;
}

void Linear::backward_swiglu(Ctx& c, const Tensor& dgate_up, const CTensor& dy, const CTensor& a,
                             const CTensor& gate_up, const StreamRows& stream, const CTensor& low) const {
  if (split() || !adapter_.active())
    return swiglu_backward(c, dgate_up, backward(c, dy, a, stream, low), gate_up);
  ArenaScope scope(c.scratch);
  const Tensor da = c.scratch.like(a);
  backward_base(c, da, dy, a);
  adapter_.backward_swiglu(c, dgate_up, da, dy, a, gate_up, low);
}

/// With whole weights, adapters aside.
void Linear::backward_base(Ctx& c, const Tensor& dx, const CTensor& dy, const CTensor& x) const {
  if (weight_->has_grad()) linear_backward_weight(c, weight_->grad, dy, x, weight_->take_write());
  add_bias_gradient(c, dy);
  linear_backward_input(c, dx, dy, weight_->value);
}

/// Column parallel. Both lanes have the same scratch: of what is queued here only the exchanges take more of
/// it, no product.
void Linear::backward_by_rows(Ctx& c, const Tensor& dx, const CTensor& dy, const CTensor& x,
                              const StreamRows& stream, const CTensor& low) const {
  ArenaScope scope(c.scratch);
  const Tensor part = c.scratch.make({dy.dim(0), weight_->value.dim(1)}, accumulate_dtype(dy.dtype));
  Ctx beside = splits_.tp->beside(c);
  beside.lane.follow(c.lane);
  const bool reads_x = weight_->has_grad() || adapter_.active();
  const CTensor whole_x = reads_x ? whole_input(beside, x, stream) : CTensor{};
  linear_backward_input(c, part, dy, weight_->value);
  c.lane.follow(beside.lane);  // x is here
  if (adapter_.active()) adapter_.backward(c, part, dy, whole_x, low);
  beside.lane.follow(c.lane);
  if (splits_.shares(stream))
    sum_own_tokens(beside, *splits_.tp, dx, part, "gradient of an input, sum over tp for own tokens");
  else
    sum_parts(beside, *splits_.tp, dx, part);
  if (weight_->has_grad()) linear_backward_weight(c, weight_->grad, dy, whole_x, weight_->take_write());
  c.lane.follow(beside.lane);
  add_bias_gradient(c, dy);
}

/// Row parallel; scratch as above.
void Linear::backward_by_columns(Ctx& c, const Tensor& dx, const CTensor& dy, const CTensor& x,
                                 const StreamRows& stream) const {
  ArenaScope scope(c.scratch);
  Collectives& tp = *splits_.tp;
  const Tensor columns = c.scratch.make({outputs(), x.dim(1)}, x.dtype);
  CTensor all = dy;
  if (splits_.shares(stream)) {
    const Tensor gathered = c.scratch.make({stream.tokens, outputs()}, dy.dtype);
    gather_tokens(c, tp, gathered, dy);
    all = gathered;
  }
  Ctx beside = tp.beside(c);
  beside.lane.follow(c.lane);
  rows_to_columns(beside, tp, columns, weight_->value, "weights, copied for backward to owners of columns");
  if (weight_->has_grad())
    linear_backward_weight(c, make_tensor(weight_->grad.raw(), weight_->grad.dtype, {outputs(), x.dim(1)}),
                           all, x, weight_->take_write());
  c.lane.follow(beside.lane);
  linear_backward_input(c, dx, all, columns);
  if (adapter_.active()) adapter_.backward_by_columns(c, tp, dx, all, x);
  if (bias_ && bias_->has_grad()) add_bias_gradient(c, own_columns(c, tp, all));
}

void Linear::add_bias_gradient(Ctx& c, const CTensor& own_dy) const {
  if (bias_ && bias_->has_grad()) linear_backward_bias(c, bias_->grad_sum(c.lane), own_dy);
}

}  // namespace temper
