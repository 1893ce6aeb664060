#pragma once
// The order of a model's steps, forward and backward: one list, which a pass executes (models/layer_pass.h),
// which says ahead what is gathered (ZeRO-3), and by which whoever has no tokens takes part in the gathers
// and sums of others (models/join_pass.h).

#include <vector>

#include "src/models/recompute.h"

namespace temper {

/// A range of a model's layers; a model with one is taken as that.
struct ModelPart {
  ModelPart(const Model& whole) : ModelPart(whole, whole.layers()) {}
  ModelPart(const Model& of, const LayerRange& range) : model(of), layers(range) {}
  bool is_first() const { return layers.begin == 0; }
  bool is_last() const { return layers.end == model.config().num_layers; }
  /// A layer's place among those of the part.
  size_t index(int64_t layer) const { return static_cast<size_t>(layer - layers.begin); }

  const Model& model;
  LayerRange layers;
};

/// Told when a unit has all gradients of this backward, in the order of backward: head, layers from the last
/// to the first, embedding.
class LayerWatcher {
 public:
  virtual ~LayerWatcher() = default;
  virtual void after_backward(Ctx& c, const Unit& unit) = 0;
};

struct UnitStep {
  enum class Kind {
    begin,           // the stream before the first layer
    layer,           // forward
    end,             // the hidden states
    end_backward,    // from their gradient that of the stream after the layers
    layer_again,     // forward, in a backward
    layer_backward,  //
    begin_backward,  // into the embedding; of another part than the first the gradient before its layers
  };
  Kind kind = Kind::begin;
  int64_t layer = -1;
  bool ends_run = false;  // the last step of a run of layers in a backward
  RecomputePlan::Run run = {};
  size_t run_number = 0;              // of the layers, in RecomputePlan::runs
  std::vector<UnitGroup> reads = {};  // they are gathered first
  UnitGroup filled = {};              // they have all gradients of this backward then
};
/// The steps of a pass over a part, the backward of one that kept what the plan says.
std::vector<UnitStep> pass_order(const ModelPart& part, const RecomputePlan& recompute, bool backward);

/// The same, before the first of these steps: the model is told what they gather.
std::vector<UnitStep> announced_order(const ModelPart& part, const RecomputePlan& recompute, bool backward);
/// Before and after the work of a step, or in its place where there is none. `watcher` may be null.
void enter(Ctx& c, const Model& model, const UnitStep& step);
void leave(Ctx& c, const UnitStep& step, LayerWatcher* watcher);

}  // namespace temper
