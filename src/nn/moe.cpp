#include "src/nn/moe.h"

#include <numeric>

#include "src/ops/elementwise.h"
#include "src/ops/experts.h"
#include "src/ops/linear.h"
#include "src/ops/rows.h"

namespace temper {
namespace {

/// Exactly, in the accumulate dtype.
Tensor widened(Ctx& c, const CTensor& x) {
  const Tensor wide = c.scratch.make({x.dim(0), x.dim(1)}, accumulate_dtype(x.dtype));
  CTensor from = x;
  from.rank = 1, from.dims = {x.size(), 1, 1, 1};
  widen(c, make_tensor(wide.raw(), wide.dtype, {wide.size()}), from);
  return wide;
}

/// Where own rows are when all have come back.
void set_places(Ctx& c, const Tensor& places, const ExpertExchange& exchange) {
  if (places.size() == 0) return;
  const ArenaScope scope(c.scratch);
  device::copy(c.lane, places.raw(), index_tensor(c, exchange.places()).data, places.bytes());
}

}  // namespace

/// Which experts take each token, and their rows.
void Moe::choose(Ctx& c, MoeSaved& s, CTensor x, const Keep& keep) const {
  Arena& memory = keep.for_products(c);
  const DType accumulate = accumulate_dtype(x.dtype);
  const int64_t tokens = x.dim(0), k = config_.experts_per_token;
  s.logits = memory.make({tokens, p_.router->value.dim(0)}, accumulate);
  s.ids = memory.make({tokens, k}, DType::i32);
  s.weights = memory.make({tokens, k}, accumulate);
  s.offsets = memory.make({config_.num_experts + 1}, DType::i32);
  s.tokens = memory.make({tokens * k}, DType::i32);
  s.places = memory.like(s.ids);
  linear_forward(c, s.logits, x, p_.router->value, {});
  choose_experts(c, s.ids, s.weights, s.logits, config_.num_experts, config_.normalizes);
  const RouterNotes& notes = keep.router;
  if (!notes.others.empty()) count_other_routes(c, notes.others, s.ids, notes.given);
  if (notes.follows)
    follow_routes(c, s.ids, s.weights, notes.given, s.logits, config_.num_experts, config_.normalizes);
  if (!notes.chosen.empty()) device::copy(c.lane, notes.chosen.raw(), s.ids.data, s.ids.bytes());
  sort_by_expert(c, s.offsets, s.tokens, s.places, s.ids);
}

void Moe::forward_into(Ctx& c, Tensor y, CTensor x, MoeSaved* saved, const Keep& keep,
                       const StreamRows& stream) const {
  MoeSaved s;
  if (keep.rest) s.x = x;
  if (shared_) {
    s.shared_y = keep.for_products(c).like(y);
    shared_->forward_into(c, s.shared_y, x, saved ? &s.shared : nullptr, keep, stream);
  }
  choose(c, s, x, keep);
  s.router = keep.router;
  if (!s.router.sums.empty()) add_router_sums(c, s.router.sums, s.logits, s.offsets);
  if (!s.router.counts.empty()) add_router_counts(c, s.router.counts, s.ids, s.router.begins);
  const bool exchanges = apart() && (stream.shared || always_sends_);
  if (!exchanges) s.gate_up = keep.for_products(c).make({num_rows(x), 2 * config_.expert_size}, x.dtype);
  const ArenaScope scope(c.scratch);
  const Tensor made = exchanges ? experts_of_ranks(c, s, x, keep) : experts(c, s, x);
  combine_experts(c, y, made, s.places, s.weights, s.shared_y, s.logits);
  if (saved) *saved = s;
}

/// What the experts make [T K, D] of tokens that all ranks have.
Tensor Moe::experts(Ctx& c, const MoeSaved& s, CTensor x) const {
  const Tensor made = c.scratch.make({num_rows(x), x.dim(1)}, x.dtype);
  const int64_t own = config_.num_experts / (ep_ ? ep_->size() : 1), first = ep_ ? own * ep_->rank() : 0;
  if (apart()) device::fill(c.lane, made.raw(), 0, made.bytes());
  multiply(c, made, s.gate_up,
           {.x = x, .tokens = s.tokens, .offsets = rows(s.offsets, first, first + own + 1)});
  if (apart()) {  // x + 0 is x for what is added up from here on
    const Tensor flat = make_tensor(made.raw(), made.dtype, {made.size()});
    ep_->all_reduce_sum(c, flat, "rows of experts, copied from their ep owners");
  }
  return made;
}

/// The same where each rank has tokens of its own. Of one window the products are kept for the backward.
Tensor Moe::experts_of_ranks(Ctx& c, MoeSaved& s, CTensor x, const Keep& keep) const {
  const ExpertExchange exchange(c, *ep_, s.ids, config_.num_experts);
  const int64_t width = 2 * config_.expert_size;
  if (exchange.windows().size() == 1)
    s.gate_up = keep.for_products(c).make({exchange.windows().front().num_rows(), width}, x.dtype);
  set_places(c, s.places, exchange);
  const Tensor all = c.scratch.make({num_rows(x), x.dim(1)}, x.dtype);
  for (const ExpertWindow& w : exchange.windows()) {
    const ArenaScope scope(c.scratch);
    const Tensor come = exchange.tokens(c, w, x, "tokens, copied to their experts"),
                 made = c.scratch.make({w.num_rows(), x.dim(1)}, x.dtype),
                 gate_up = s.gate_up.empty() ? c.scratch.make({w.num_rows(), width}, x.dtype) : s.gate_up;
    multiply(c, made, gate_up,
             {.x = come, .tokens = index_tensor(c, w.tokens), .offsets = index_tensor(c, w.offsets)});
    exchange.rows_back(c, w, all, made, "rows of experts, copied to the owners of their tokens");
  }
  return all;
}

/// gate_up [R, 2F] and made [R, D]: the products of the rows of experts that are here.
void Moe::multiply(Ctx& c, Tensor made, Tensor gate_up, const Rows& of) const {
  if (of.count() == 0) return;
  multiply_gate_up(c, gate_up, of);
  const ArenaScope scope(c.scratch);
  const Tensor a = c.scratch.make({of.count(), config_.expert_size}, of.x.dtype);
  swiglu_forward(c, a, gate_up);
  expert_linear_forward(c, made, a, p_.down->value, of.offsets);
}

Tensor Moe::backward(Ctx& c, CTensor dy, CTensor x, const MoeSaved& s, const StreamRows& stream) const {
  const Tensor dx = c.scratch.like(x);
  const ArenaScope scope(c.scratch);
  const Tensor dlogits = c.scratch.like(s.logits), dweights = c.scratch.like(s.weights);
  Tensor dshared;
  if (shared_) {
    dshared = s.shared_y;
    shared_expert_backward(c, dshared, dlogits, dy, s.shared_y, s.logits);
    dshared = shared_->backward(c, dshared, x, s.shared, stream);
  }
  const Tensor drows =
      apart() ? backward_of_ranks(c, dweights, dy, x, s) : backward_experts(c, dweights, dy, x, s);
  choose_experts_backward(c, dlogits, dweights, s.ids, s.weights, s.logits, config_.num_experts,
                          config_.normalizes);
  if (!s.router.slopes.empty() && p_.router->has_grad())
    router_losses_backward(c, dlogits, s.router.losses, s.logits, s.router.slopes, s.router.begins,
                           s.router.z);
  sum_expert_rows(c, dx, drows, s.places, backward_router(c, dlogits, x), dshared);
  return dx;
}

void Moe::multiply_gate_up(Ctx& c, Tensor gate_up, const Rows& of) const {
  const ArenaScope scope(c.scratch);
  const Tensor rows = c.scratch.make({of.count(), of.x.dim(1)}, of.x.dtype);
  gather_rows(c, rows, of.x, of.tokens);
  expert_linear_forward(c, gate_up, rows, p_.gate_up->value, of.offsets);
}

/// The gradient [T K, D] of the rows that experts took, and of the weights of their sum.
Tensor Moe::backward_experts(Ctx& c, Tensor dweights, CTensor dy, CTensor x, const MoeSaved& s) const {
  return multiply_backward(
      c, dweights, s.gate_up,
      {.x = x, .dy = dy, .tokens = s.tokens, .offsets = s.offsets, .places = s.places, .weights = s.weights});
}

/// The same where each rank has tokens of its own: products that were not kept are made again.
Tensor Moe::backward_of_ranks(Ctx& c, Tensor dweights, CTensor dy, CTensor x, const MoeSaved& s) const {
  const ExpertExchange exchange(c, *ep_, s.ids, config_.num_experts);
  const Tensor all = c.scratch.make({num_rows(x), x.dim(1)}, x.dtype);
  const ArenaScope all_windows(c.scratch);
  const Tensor of_weights = c.scratch.make({num_rows(x), 1}, dweights.dtype);
  for (const ExpertWindow& w : exchange.windows()) {
    const ArenaScope scope(c.scratch);
    std::vector<int32_t> each(w.tokens.size());
    std::iota(each.begin(), each.end(), 0);
    Rows rows{.x = exchange.tokens(c, w, x, "tokens, copied to their experts"),
              .dy = exchange.tokens(c, w, dy, "gradients of tokens, copied to their experts"),
              .tokens = index_tensor(c, w.tokens),
              .offsets = index_tensor(c, w.offsets),
              .places = index_tensor(c, each),
              .weights = exchange.values(c, w, s.weights, "weights of rows, copied to their experts")};
    rows.places = make_tensor(const_cast<void*>(rows.places.data), DType::i32, {rows.count(), 1});
    Tensor gate_up = s.gate_up;
    if (gate_up.empty() && rows.count() > 0) {
      gate_up = c.scratch.make({rows.count(), 2 * config_.expert_size}, x.dtype);
      multiply_gate_up(c, gate_up, rows);
    }
    const Tensor own = c.scratch.make({rows.count(), 1}, dweights.dtype),
                 drows = multiply_backward(c, own, gate_up, rows);
    exchange.rows_back(c, w, all, drows, "gradients of rows, copied to the owners of their tokens");
    exchange.rows_back(c, w, of_weights, own, "gradients of weights, copied to the owners of their tokens");
  }
  const Tensor flat = make_tensor(dweights.raw(), dweights.dtype, {dweights.size(), 1});
  gather_rows(c, flat, of_weights, index_tensor(c, exchange.places()));
  return all;
}

/// The gradient [R, D] of such rows, and of their weights: not of what each expert made, which is not kept,
/// but of what goes into its last product.
Tensor Moe::multiply_backward(Ctx& c, Tensor dweights, Tensor gate_up, const Rows& of) const {
  const Tensor rows = c.scratch.make({of.count(), of.x.dim(1)}, of.x.dtype);
  if (of.count() == 0) return rows;
  const ArenaScope scope(c.scratch);
  const Tensor a = c.scratch.make({of.count(), config_.expert_size}, of.x.dtype), da = c.scratch.like(a);
  swiglu_forward(c, a, gate_up);
  gather_rows(c, rows, of.dy, of.tokens);
  expert_linear_backward_input(c, da, rows, p_.down->value, of.offsets);
  weigh_expert_rows_backward(c, da, a, dweights, da, a, of.places, of.weights);
  if (p_.down->has_grad())
    expert_linear_backward_weight(c, p_.down->grad, rows, a, of.offsets, p_.down->take_write());
  swiglu_backward(c, gate_up, da, gate_up);
  if (p_.gate_up->has_grad()) {
    gather_rows(c, rows, of.x, of.tokens);
    expert_linear_backward_weight(c, p_.gate_up->grad, gate_up, rows, of.offsets, p_.gate_up->take_write());
  }
  expert_linear_backward_input(c, rows, gate_up, p_.gate_up->value, of.offsets);
  return rows;
}

void Moe::join(Ctx& c, bool backward) const {
  const ArenaScope scope(c.scratch);
  const DType dtype = p_.gate_up->value.dtype, wide = accumulate_dtype(dtype);
  const Tensor none = c.scratch.make({0, p_.gate_up->value.dim(1)}, dtype);
  MoeSaved s;
  s.ids = s.places = c.scratch.make({0, config_.experts_per_token}, DType::i32);
  s.weights = c.scratch.make({0, config_.experts_per_token}, wide);
  if (backward)
    backward_of_ranks(c, s.weights, none, none, s);
  else
    experts_of_ranks(c, s, none, {});
}

/// In A, as the logits: of [T, D] the part that goes through the choice of experts.
Tensor Moe::backward_router(Ctx& c, Tensor dlogits, CTensor x) const {
  const Tensor dx = widened(c, x);
  if (p_.router->has_grad()) linear_backward_weight(c, p_.router->grad, dlogits, dx, p_.router->take_write());
  linear_backward_input(c, dx, dlogits, widened(c, p_.router->value));
  return dx;
}

}  // namespace temper
