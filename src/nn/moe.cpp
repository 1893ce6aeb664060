#include "src/nn/moe.h"

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
  s.gate_up = keep.for_products(c).make({num_rows(x), 2 * config_.expert_size}, x.dtype);
  const ArenaScope scope(c.scratch);
  {
    const ArenaScope gathered(c.scratch);
    const Tensor rows = c.scratch.make({num_rows(x), x.dim(1)}, x.dtype);
    gather_rows(c, rows, x, s.tokens);
    expert_linear_forward(c, s.gate_up, rows, p_.gate_up->value, s.offsets);
  }
  const Tensor a = c.scratch.make({num_rows(x), config_.expert_size}, x.dtype),
               made = c.scratch.make({num_rows(x), y.dim(1)}, x.dtype);
  swiglu_forward(c, a, s.gate_up);
  expert_linear_forward(c, made, a, p_.down->value, s.offsets);
  combine_experts(c, y, made, s.places, s.weights, s.shared_y, s.logits);
  if (saved) *saved = s;
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
  const Tensor drows = backward_experts(c, dweights, dy, x, s);
  choose_experts_backward(c, dlogits, dweights, s.ids, s.weights, s.logits, config_.num_experts,
                          config_.normalizes);
  if (!s.router.slopes.empty() && p_.router->has_grad())
    router_losses_backward(c, dlogits, s.router.losses, s.logits, s.router.slopes, s.router.begins,
                           s.router.z);
  sum_expert_rows(c, dx, drows, s.places, backward_router(c, dlogits, x), dshared);
  return dx;
}

/// The gradient [R, D] of the rows that experts took, and of the weights of their sum: not of what each of
/// them made, which is not kept, but of what goes into its last product.
Tensor Moe::backward_experts(Ctx& c, Tensor dweights, CTensor dy, CTensor x, const MoeSaved& s) const {
  const Tensor rows = c.scratch.make({num_rows(x), x.dim(1)}, x.dtype),
               a = c.scratch.make({num_rows(x), config_.expert_size}, x.dtype), da = c.scratch.like(a);
  swiglu_forward(c, a, s.gate_up);
  gather_rows(c, rows, dy, s.tokens);
  expert_linear_backward_input(c, da, rows, p_.down->value, s.offsets);
  weigh_expert_rows_backward(c, da, a, dweights, da, a, s.places, s.weights);
  if (p_.down->has_grad())
    expert_linear_backward_weight(c, p_.down->grad, rows, a, s.offsets, p_.down->take_write());
  swiglu_backward(c, s.gate_up, da, s.gate_up);
  if (p_.gate_up->has_grad()) {
    gather_rows(c, rows, x, s.tokens);
    expert_linear_backward_weight(c, p_.gate_up->grad, s.gate_up, rows, s.offsets, p_.gate_up->take_write());
  }
  expert_linear_backward_input(c, rows, s.gate_up, p_.gate_up->value, s.offsets);
  return rows;
}

/// In A, as the logits: of [T, D] the part that goes through the choice of experts.
Tensor Moe::backward_router(Ctx& c, Tensor dlogits, CTensor x) const {
  const Tensor dx = widened(c, x);
  if (p_.router->has_grad()) linear_backward_weight(c, p_.router->grad, dlogits, dx, p_.router->take_write());
  linear_backward_input(c, dx, dlogits, widened(c, p_.router->value));
  return dx;
}

}  // namespace temper
