#include "src/nn/linear.h"

#include "src/ops/elementwise.h"
#include "src/ops/glu.h"
#include "src/ops/linear.h"

namespace temper {
namespace {

/// Copies the columns of one rank between its own matrix and the whole one. `parts`: rows of W that belong
/// together; each rank has an equal share of every part.
template <class Copy>
void for_each_share(const std::vector<HfPart>& parts, int rank, int ranks, Copy&& copy) {
  int64_t whole = 0, own = 0;
  for (const HfPart& part : parts) {
    const int64_t share = part.rows / ranks;
    copy(whole + rank * share, own, share);
    whole += part.rows;
    own += share;
  }
}

char* column(const CTensor& t, int64_t at) {
  return static_cast<char*>(const_cast<void*>(t.data)) + at * dtype_size(t.dtype);
}

int64_t pitch(const CTensor& t) { return t.dim(1) * dtype_size(t.dtype); }

}  // namespace

Linear::Linear(Parameter& weight, Parameter* bias, const Splits& splits)
    : weight_(&weight), bias_(bias), splits_(splits) {
  const bool sharded = weight.spec.shard == Shard::rows;
  CHECK(!split() || sharded, "{} is not sharded and split over {} ranks", weight.spec.name,
        splits.tp_ranks());
  CHECK(!bias || bias->spec.shard == weight.spec.shard, "{} and its bias are sharded otherwise",
        weight.spec.name);
}

Tensor Linear::forward(Ctx& c, const CTensor& x, Arena& memory) const {
  const Tensor y = memory.make({x.dim(0), outputs()}, x.dtype);
  forward_into(c, y, x);
  return y;
}

void Linear::forward_into(Ctx& c, const Tensor& y, const CTensor& x) const {
  if (!split()) return multiply(c, y, x);
  ArenaScope scope(c.scratch);
  Collectives& tp = *splits_.tp;
  const int64_t rows = x.dim(0), columns = weight_->value.dim(0);
  const Tensor mine = c.scratch.make({rows, columns}, x.dtype),
               all = c.scratch.make({tp.size() * rows, columns}, x.dtype);
  multiply(c, mine, x);
  tp.all_gather(c, all, mine, "output columns, copied from their tp owners");
  for (int rank = 0; rank < tp.size(); ++rank) {
    const Tensor theirs = temper::rows(all, rank * rows, (rank + 1) * rows);
    for_each_share(weight_->spec.parts, rank, tp.size(), [&](int64_t whole, int64_t own, int64_t share) {
      device::copy_rows(c.lane, column(y, whole), pitch(y), column(theirs, own), pitch(theirs),
                        share * dtype_size(y.dtype), rows);
    });
  }
}

void Linear::multiply(Ctx& c, const Tensor& y, const CTensor& x) const {
  linear_forward(c, y, x, weight_->value, bias_ ? CTensor(bias_->value) : CTensor{});
}

void Linear::forward_swiglu(Ctx& c, const Tensor& a, const CTensor& x) const {
  if (!split())
    return linear_swiglu_forward(c, a, x, weight_->value, bias_ ? CTensor(bias_->value) : CTensor{});
  ArenaScope scope(c.scratch);
  swiglu_forward(c, a, forward(c, x, c.scratch));
}

/// The columns of dy that belong to this rank's rows of W.
CTensor Linear::own_outputs(Ctx& c, const CTensor& dy) const {
  if (!split()) return dy;
  const Tensor own = c.scratch.make({dy.dim(0), weight_->value.dim(0)}, dy.dtype);
  const Collectives& tp = *splits_.tp;
  for_each_share(weight_->spec.parts, tp.rank(), tp.size(), [&](int64_t whole, int64_t at, int64_t share) {
    device::copy_rows(c.lane, column(own, at), pitch(own), column(dy, whole), pitch(dy),
                      share * dtype_size(dy.dtype), dy.dim(0));
  });
  return own;
}

Tensor Linear::backward_input(Ctx& c, const CTensor& dy) const {
  const Tensor dx = c.scratch.make({dy.dim(0), weight_->value.dim(1)}, dy.dtype);
  ArenaScope scope(c.scratch);
  linear_backward_input(c, dx, own_outputs(c, dy), weight_->value);
  if (split()) splits_.tp->all_reduce_sum(c, make_tensor(dx.raw(), dx.dtype, {dx.size()}), "dx, sum over tp");
  return dx;
}

void Linear::backward_weight(Ctx& c, const CTensor& dy, const CTensor& x) const {
  if (!weight_->has_grad()) return;
  ArenaScope scope(c.scratch);
  const CTensor own = own_outputs(c, dy);
  linear_backward_weight(c, weight_->grad, own, x, weight_->take_write());
  if (bias_) linear_backward_bias(c, bias_->grad_sum(c.lane), own);
}

}  // namespace temper
