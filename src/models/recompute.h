#pragma once
// What backward computes again instead of finding it kept.

#include <vector>

#include "src/models/model.h"

namespace temper {

/// What a pass does not keep of its layers. Of `full`, runs of layers are computed again from the stream
/// before the first of them: all layers in runs of `num_layers`, or (`block`) the first `num_layers`, one by
/// one. No choice changes a bit.
struct RecomputePlan {
  Recompute granularity = Recompute::none;
  bool block = false;
  int64_t num_layers = 1;

  struct Run {
    LayerRange layers;
    Recompute recompute;
  };
  /// Layers in order, in runs of one plan each.
  std::vector<Run> runs(const LayerRange& layers) const;
};

}  // namespace temper
