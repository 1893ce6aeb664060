#pragma once
// A model's steps over tokens, forward and backward, in the order of models/pass_order.h: the one pass that
// trainer, log-prob passes and engine all make. Over all layers, or over a range of them between the stages
// of a pipeline.

#include <vector>

#include "src/models/pass_order.h"

namespace temper {

/// What a forward keeps for its backward, in c.saved, which is as it was then when backward begins: it gives
/// the memory of each run of layers back when they are done.
struct PassSaved {
  struct Run {
    Arena::Mark begin;  // of its memory
    Tensor stream;      // before its first layer
  };
  RecomputePlan recompute = {};  // chosen by the caller
  std::vector<LayerSaved> layers = {};  // of the part; empty ones where they are computed again
  std::vector<Run> runs = {};
  NormSaved norm = {};
};

/// Final hidden states [T, D] of a batch, by a part with the last layers: `x` before them, none where it has
/// the first ones too. Without `saved` only one layer's activations are alive at a time.
Tensor forward_pass(Ctx& c, const ModelPart& part, const Batch& b, PassSaved* saved = nullptr,
                    const Residual& x = {});
/// The stream after the part's layers, which are not the last: [Model::stream_rows, D], as is `x`.
void forward_stage(Ctx& c, const ModelPart& part, const Batch& b, const Residual& x, PassSaved* saved,
                   const Tensor& stream);
/// From the gradient [T, D] of the hidden states, or of the stream after the part's layers. Adds to all
/// gradients but those of the head's product, which were made before; gives scratch back. `dx`: overwritten
/// by the gradient of the stream before the layers, none where they are the first.
void backward_pass(Ctx& c, const ModelPart& part, const Batch& b, const CTensor& dhidden,
                   const PassSaved& saved, LayerWatcher* watcher, const Tensor& dx = {});

}  // namespace temper
