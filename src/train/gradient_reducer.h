#pragma once
// Sums the gradients of a unit, over tp what ranks share of it, over dp, as soon as its last backward is
// done. Every rank reduces every unit once an update, in the order of backward; a rank without micro-batches,
// in the same order, at once.

#include "src/models/layer_pass.h"
#include "src/nn/tensor_parallel.h"

namespace temper {

class GradientReducer : public LayerWatcher {
 public:
  /// `tp` null: nothing is shared.
  GradientReducer(ParameterStore& parameters, Collectives& dp, Collectives* tp)
      : parameters_(parameters), dp_(dp), tp_(tp) {}

  void after_backward(Ctx& c, const Unit& unit) override {
    parameters_.settle_grads(c.lane, unit);
    if (tp_) sum_shared_gradients(c, *tp_, parameters_, unit);
    dp_.reduce_scatter_sum(c, parameters_.grads_of(unit), "gradients, sum over dp");
  }
  void reduce_all(Ctx& c) {
    for (auto unit = parameters_.units().rbegin(); unit != parameters_.units().rend(); ++unit)
      if (unit->range.size() > 0) after_backward(c, *unit);
  }

 private:
  ParameterStore& parameters_;
  Collectives& dp_;
  Collectives* tp_;
};

}  // namespace temper
