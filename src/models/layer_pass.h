#pragma once
// The order of a model's steps, forward and backward: the one pass that trainer, log-prob passes and engine
// all make. Over all layers, or over a range of them between the stages of a pipeline.

#include <vector>

#include "src/models/recompute.h"

namespace temper {

/// What a forward keeps for its backward, in c.saved, which is as it was then when backward begins: it gives
/// the memory of each run of layers back when they are done.
struct PassSaved {
  RecomputePlan recompute = {};         // chosen by the caller
  std::vector<LayerSaved> layers = {};  // of the model's range
  std::vector<Arena::Mark> runs = {};   // where the memory of each run begins
  NormSaved norm = {};
};

/// Told when a unit has all gradients of this backward, in the order of backward: head, layers from the last
/// to the first, embedding.
class LayerWatcher {
 public:
  virtual ~LayerWatcher() = default;
  virtual void after_backward(Ctx& c, const Unit& unit) = 0;
};

/// The residual stream after the model's layers, from `x` before them. Without `saved` only one layer's
/// activations are alive at a time.
Residual forward_layers(Ctx& c, const Model& model, const Batch& b, const Residual& x, PassSaved* saved);
/// The gradient dx [T, D] of the stream before the model's layers, from `dy` after them.
Tensor backward_layers(Ctx& c, const Model& model, const Batch& b, const CTensor& dy, const PassSaved& saved,
                       LayerWatcher* watcher);

/// Final hidden states [T, D] of a batch, by a model with the last layers: `x` before them, none where it has
/// the first ones too.
Tensor forward_pass(Ctx& c, const Model& model, const Batch& b, PassSaved* saved = nullptr,
                    const Residual& x = {});
/// The stream after the model's layers, which are not the last: [Model::stream_rows, D], as is `x`.
void forward_stage(Ctx& c, const Model& model, const Batch& b, const Residual& x, PassSaved* saved,
                   const Tensor& stream);
/// From the gradient [T, D] of the hidden states, or of the stream after the model's layers. Adds to all
/// gradients but those of the head's product, which were made before; gives scratch back. `dx`: overwritten
/// by the gradient of the stream before the layers, none where they are the first.
void backward_pass(Ctx& c, const Model& model, const Batch& b, const CTensor& dhidden, const PassSaved& saved,
                   LayerWatcher* watcher, const Tensor& dx = {});

}  // namespace temper
