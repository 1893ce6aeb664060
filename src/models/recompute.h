#pragma once
// What a forward keeps for its backward, and what backward computes again: chosen for layers, which only say
// which of their memory is for what (nn/keep.h).

#include <vector>

#include "src/models/model.h"

namespace temper {

/// What is not kept for the backward of a layer but computed again, with the same bits: nothing; what
/// products do not give (norms, rope, SwiGLU); all but the stream before the layer.
enum class Recompute { none, selective, full };

/// What a pass does not keep of its layers. Of `full`, runs of layers are computed again from the stream
/// before the first of them: all layers in runs of `num_layers`, or (`block`) the first `num_layers`, one by
/// one. No choice changes a bit.
struct RecomputePlan {
  Recompute granularity = Recompute::none;
  bool block = false;
  int64_t num_layers = 1;

  struct Run {
    LayerRange layers = {};
    Recompute recompute = Recompute::none;
    /// For each of its layers; of those that are computed again the stream before the run is kept, and no
    /// more.
    Keep keep(Arena& saved) const;
    bool again() const { return recompute == Recompute::full; }
  };
  /// Layers in order, in runs of one plan each.
  std::vector<Run> runs(const LayerRange& layers) const;
};

}  // namespace temper
