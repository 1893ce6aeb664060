#include "src/models/join_pass.h"

#include "src/core/process/progress.h"

namespace temper {
namespace {

void join_forward(Ctx& c, const Model& model) {
  if (model.is_first()) model.gather_begin(c);
  for (int64_t layer = model.layers().begin; layer < model.layers().end; ++layer)
    model.gather_layer(c, layer);
  if (model.is_last()) model.gather_end(c);
}

void join_backward(Ctx& c, const Model& model, const RecomputePlan& recompute, LayerWatcher& watcher) {
  if (model.is_last()) watcher.after_backward(c, model.head_unit());
  const std::vector<RecomputePlan::Run> runs = recompute.runs(model.layers());
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const LayerRange& layers = run->layers;
    for (int64_t layer = layers.begin; run->recompute == Recompute::full && layer < layers.end; ++layer)
      model.gather_layer(c, layer);
    for (int64_t layer = layers.end; layer-- > layers.begin;) {
      model.gather_layer(c, layer);
      watcher.after_backward(c, model.layer_unit(layer));
    }
  }
  if (model.is_first() || model.has_tied_copy()) watcher.after_backward(c, model.embedding_unit());
}

}  // namespace

void join_pass(Ctx& c, Model& model, const RecomputePlan& recompute, bool backward, LayerWatcher& watcher) {
  note_progress();
  if (backward == model.is_last()) join_forward(c, model);
  if (!backward) return;
  model.parameters().clear_grads();
  join_backward(c, model, recompute, watcher);
}

}  // namespace temper
