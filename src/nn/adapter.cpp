#include "src/nn/adapter.h"

#include <algorithm>

#include "src/nn/parallel/tensor_parallel.h"
#include "src/ops/adapters/adapter.h"
#include "src/ops/linear.h"

namespace temper {
namespace {

/// What a module's tensors are called without their last part: "model.layers.0.self_attn.q_proj".
std::string module_of(const HfPart& part, const char* tensor) {
  CHECK(part.name.ends_with(tensor), "{} does not end with {}", part.name, tensor);
  return part.name.substr(0, part.name.size() - std::string_view(tensor).size());
}

/// The rows of B's parts, and where they are among those of the weights.
AdapterBlocks blocks_of(const Parameter& b, const Parameter& base) {
  AdapterBlocks blocks;
  for (size_t i = 0; i < b.spec.parts.size(); ++i)
    for (size_t j = 0; j < base.spec.parts.size(); ++j) {
      if (module_of(b.spec.parts[i], ".lora_B.weight") != module_of(base.spec.parts[j], ".weight")) continue;
      blocks.to[blocks.count] = base.spans[j].own;
      blocks.from[blocks.count] = b.spans[i].own;
      blocks.rows[blocks.count++] = b.spans[i].rows;
    }
  return blocks;
}

}  // namespace

Adapter::Adapter(Parameter& a, Parameter& b, const Parameter& base, double scale, const bool& on)
    : a_(&a), b_(&b), blocks_(blocks_of(b, base)), outputs_(base.value.dim(0)), scale_(scale), on_(&on) {
  CHECK(blocks_.count == std::ssize(b.spec.parts) && a.spec.parts.size() == b.spec.parts.size(),
        "{} blocks of {}", blocks_.count, b.spec.name);
}

/// [own outputs, rows of A]; in scratch, unless B is that.
CTensor Adapter::weights(Ctx& c) const {
  if (blocks_.count == 1 && b_->value.dim(0) == outputs_) return b_->value;
  const Tensor w = c.scratch.make({outputs_, a_->value.dim(0)}, b_->value.dtype);
  adapter_weights(c, w, b_->value, blocks_);
  return w;
}

CTensor Adapter::weights_of_all(Ctx& c, Collectives& tp) const {
  const Tensor all = c.scratch.make({b_->spec.shape[0], b_->value.dim(1)}, b_->value.dtype);
  tp.all_gather(c, all, b_->value, "adapters, copied from their tp owners");
  return all;
}

LowProduct Adapter::low_of(Ctx& c, const CTensor& x) const {
  const Tensor u = make_low(c.scratch, x.dim(0));
  linear_forward(c, u, x, a_->value, {});
  return {u, b_->value, scale_, blocks_};
}

LowProduct Adapter::multiply(Ctx& c, const Tensor& y, const Tensor& u, const CTensor& x, const CTensor& w,
                             const CTensor& bias) const {
  linear_pair_forward(c, y, u, x, w, bias, a_->value);
  return {u, b_->value, scale_, blocks_};
}

void Adapter::add_to(Ctx& c, const Tensor& y, const CTensor& x) const {
  ArenaScope scope(c.scratch);
  adapter_forward(c, y, low_of(c, x));
}

void Adapter::add_to_whole(Ctx& c, Collectives& tp, const Tensor& y, const CTensor& x) const {
  ArenaScope scope(c.scratch);
  LowProduct low = low_of(c, x);
  low.b = weights_of_all(c, tp);
  low.blocks = {1, {0}, {0}, {y.dim(1)}};
  adapter_forward(c, y, low);
}

/// du; in scratch.
Tensor Adapter::backward_low(Ctx& c, const CTensor& dy, const CTensor& w) const {
  const Tensor du = c.scratch.make({dy.dim(0), w.dim(1)}, dy.dtype);
  adapter_backward_low(c, du, dy, w, scale_);
  return du;
}

void Adapter::add_gradient_of_outputs(Ctx& c, const CTensor& dy, const CTensor& u) const {
  adapter_backward_b(c, b_->grad, dy, u, scale_, blocks_, b_->take_write());
}

/// du, in scratch; adds to the gradients.
Tensor Adapter::backward_apart(Ctx& c, const CTensor& dy, const CTensor& x, const CTensor& u) const {
  const Tensor du = backward_low(c, dy, weights(c));
  if (has_gradients()) {
    ArenaScope temporary(c.scratch);
    add_gradient_of_outputs(c, dy, u.empty() ? low_of(c, x).u : u);
    adapter_backward_a(c, a_->grad, du, x, a_->take_write());
  }
  return du;
}

void Adapter::backward(Ctx& c, const Tensor& dx, const CTensor& dy, const CTensor& x,
                       const CTensor& u) const {
  ArenaScope scope(c.scratch);
  adapter_backward_input(c, dx, backward_apart(c, dy, x, u), a_->value);
}

void Adapter::backward_swiglu(Ctx& c, const Tensor& dgate_up, const Tensor& da, const CTensor& dy,
                              const CTensor& a, const CTensor& gate_up, const CTensor& u) const {
  ArenaScope scope(c.scratch);
  adapter_swiglu_backward(c, dgate_up, da, backward_apart(c, dy, a, u), a_->value, gate_up);
}

void Adapter::backward_by_columns(Ctx& c, Collectives& tp, const Tensor& dx, const CTensor& dy,
                                  const CTensor& x) const {
  ArenaScope scope(c.scratch);
  const Tensor a = own_columns(c, tp, a_->value), du = backward_low(c, dy, weights_of_all(c, tp));
  c.lane.order();  // products may read weights, as those columns are, before their wait
  if (has_gradients()) {
    ArenaScope temporary(c.scratch);
    const Tensor u = c.scratch.like(du);
    const Tensor part = c.scratch.make({u.dim(0), u.dim(1)}, accumulate_dtype(u.dtype));
    linear_forward(c, part, x, a, {});
    sum_parts(c, tp, u, part);
    add_gradient_of_outputs(c, own_columns(c, tp, dy), u);
    adapter_backward_a(c, make_tensor(a_->grad.raw(), a_->grad.dtype, {a.dim(0), a.dim(1)}), du, x,
                       a_->take_write());
  }
  adapter_backward_input(c, dx, du, a);
}

}  // namespace temper
