#pragma once
// The order of a model's steps, forward and backward: the one pass that trainer, log-prob passes and engine
// all make. Over all layers, or over a range of them between the stages of a pipeline.

#include <vector>

#include "src/models/recompute.h"

namespace temper {

/// A range of a model's layers; a model with one is taken as that.
struct ModelPart {
  ModelPart(const Model& whole) : ModelPart(whole, whole.layers()) {}
  ModelPart(const Model& of, const LayerRange& range) : model(of), layers(range) {}
  bool is_first() const { return layers.begin == 0; }
  bool is_last() const { return layers.end == model.config().num_layers; }

  const Model& model;
  LayerRange layers;
};

/// What a forward keeps for its backward, in c.saved, which is as it was then when backward begins: it gives
/// the memory of each run of layers back when they are done.
struct PassSaved {
  RecomputePlan recompute = {};         // chosen by the caller
  std::vector<LayerSaved> layers = {};  // of the part
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

/// The residual stream after the part's layers, from `x` before them. Without `saved` only one layer's
/// activations are alive at a time.
Residual forward_layers(Ctx& c, const ModelPart& part, const Batch& b, const Residual& x, PassSaved* saved);
/// The gradient dx [T, D] of the stream before the part's layers, from `dy` after them.
Tensor backward_layers(Ctx& c, const ModelPart& part, const Batch& b, const CTensor& dy,
                       const PassSaved& saved, LayerWatcher* watcher);

/// Final hidden states [T, D] of a batch, by a part with the last layers: `x` before them, none where it has
/// the first ones too.
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
