#pragma once
// Sums the gradients of a unit, over tp what ranks share of it, over the ranks that have it (dp), as soon as
// its last backward is done, beside the backward of the next one. Every rank reduces every unit once an
// update, in the order of backward; a rank without micro-batches, in the same order, at once. Where only
// shards are kept (ZeRO-2) the same is done after every backward, and added to the shard: a rank with fewer
// micro-batches than others sums zeros for those that it lacks.

#include <algorithm>
#include <map>

#include "src/models/layer_pass.h"
#include "src/nn/parallel/tensor_parallel.h"
#include "src/train/sum_ranks.h"

namespace temper {

class GradientReducer : public LayerWatcher {
 public:
  /// `tp` null: nothing is shared. Takes scratch of c, which has to last as long as the work of this.
  GradientReducer(Ctx& c, ParameterStore& parameters, const SumRanks& over, Collectives* tp)
      : parameters_(parameters), tp_(tp) {
    std::map<AxisSet, int64_t> largest;
    for (const Unit& unit : parameters.units())
      if (unit.trained) largest[unit.summed_over] = std::max(largest[unit.summed_over], unit.range.size());
    for (const auto& [axes, elements] : largest)
      if (Collectives& ranks = over.of(axes); ranks.size() > 1 || parameters.shards_grads())
        sums_.emplace(axes, Sum{ranks, ranks.make_pieces(c, elements, accumulate_dtype(parameters.dtype()))});
  }

  void after_backward(Ctx& c, const Unit& unit) override {
    if (!unit.trained) return;
    parameters_.fill_grads(c.lane, unit);
    if (tp_) complete_gradients(c, *tp_, parameters_, unit);
    wait(c);  // for the unit before: the next one may take its window
    const auto found = sums_.find(unit.summed_over);
    if (found == sums_.end()) return;
    const auto& [ranks, pieces] = found->second;
    Ctx beside = ranks.beside(c);
    beside.lane.follow(c.lane);
    const Tensor all = parameters_.grads_of(unit);
    constexpr const char* kWhat = "gradients, sum over dp";
    if (!parameters_.shards_grads()) return ranks.reduce_scatter_sum(beside, all, kWhat, pieces);
    const FlatRange own = shard_range(all.size(), ranks.rank(), ranks.size());
    const Tensor sums =
        own.size() > 0 ? parameters_.grad_sums(unit.range.begin + own.begin, own.size()) : Tensor();
    ranks.reduce_scatter_onto(beside, sums, all, kWhat, pieces);
  }
  /// What comes on the lane of c finds the sums done.
  void wait(Ctx& c) {
    for (auto& [axes, sum] : sums_) c.lane.follow(sum.ranks.beside(c).lane);
  }
  /// Where only shards are kept: gradients of the same units are made again from here on.
  void begin_backward(Ctx& c) {
    if (!parameters_.shards_grads()) return;
    wait(c);
    parameters_.clear_grads();
  }
  /// After the last backward of this rank's micro-batches, of which ranks have these numbers.
  void finish(Ctx& c, size_t own, size_t most) {
    const size_t sums = parameters_.shards_grads() ? std::max<size_t>(most, 1) : 1;
    for (size_t i = own; i < sums; ++i) {
      begin_backward(c);
      for (auto unit = parameters_.units().rbegin(); unit != parameters_.units().rend(); ++unit)
        if (unit->range.size() > 0) after_backward(c, *unit);
    }
    wait(c);
  }

 private:
  struct Sum {
    Collectives& ranks;
    Tensor pieces;
  };

  ParameterStore& parameters_;
  Collectives* tp_;
  std::map<AxisSet, Sum> sums_;  // over more than one rank, or onto what is kept
};

}  // namespace temper
