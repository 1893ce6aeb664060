#pragma once
// What the routers of a pass are told beside its tokens, and what they say of them: each tensor where there
// is a use for it, else empty. L counts all layers of the model; a layer of experts gets its own part
// (`of_layer`), without that dimension. T are the rows that a rank has of a layer, S stretches of them.

#include "src/core/tensor.h"

namespace temper {

struct RouterNotes {
  Tensor sums = {};    // [L, E + 1]: add_router_sums (ops/experts.h)
  Tensor begins = {};  // [S + 1] i32: the first rows of the stretches, and the end of the last one
  Tensor counts = {};  // [L, S, E] i32: add_router_counts
  // For router_losses_backward:
  Tensor slopes = {};  // [L, S, E]
  double z = 0;
  Tensor losses = {};  // [2], of all layers

  Tensor chosen = {};    // [L, T, K] i32: gets the ids of the experts
  Tensor given = {};     // [L, T, K] i32: ids that were recorded; -1: none were
  bool follows = false;  // given ids take the place of the router's own
  Tensor others = {};    // [1] i32, of all layers: given ids that are not the router's own are added

  /// Null: of a pass without notes.
  static RouterNotes of_layer(const RouterNotes* all, int64_t layer) {
    if (!all) return {};
    RouterNotes own = *all;
    for (Tensor* t : {&own.sums, &own.counts, &own.slopes, &own.chosen, &own.given}) {
      if (t->empty()) continue;
      *t = rows(*t, layer, layer + 1);
      for (int i = 1; i < t->rank; ++i) t->dims[static_cast<size_t>(i - 1)] = t->dim(i);
      t->dims[static_cast<size_t>(--t->rank)] = 1;
    }
    return own;
  }
  /// For a forward that is made once more.
  RouterNotes again() const {
    RouterNotes notes = *this;
    notes.sums = notes.counts = notes.chosen = notes.others = {};
    return notes;
  }
};

}  // namespace temper
