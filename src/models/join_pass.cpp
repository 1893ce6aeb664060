#include "src/models/join_pass.h"

#include "src/core/process/progress.h"
#include "src/models/gather_order.h"

namespace temper {

void join_forward(Ctx& c, const ModelPart& part) {
  note_progress();
  expect_forward(part);
  if (part.is_first()) part.model.gather_begin(c);
  for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer) part.model.gather_layer(c, layer);
  if (part.is_last()) part.model.gather_end(c);
}

namespace {

void join_backward(Ctx& c, const ModelPart& part, const RecomputePlan& recompute, LayerWatcher& watcher) {
  expect_backward(part, recompute);
  if (part.is_last()) watcher.after_backward(c, part.model.head_unit());
  const std::vector<RecomputePlan::Run> runs = recompute.runs(part.layers);
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const LayerRange& layers = run->layers;
    for (int64_t layer = layers.begin; run->recompute == Recompute::full && layer < layers.end; ++layer)
      part.model.gather_layer(c, layer);
    for (int64_t layer = layers.end; layer-- > layers.begin;) {
      part.model.gather_layer(c, layer);
      watcher.after_backward(c, part.model.layer_unit(layer));
    }
  }
  if (part.is_first() || (part.is_last() && part.model.has_tied_copy()))
    watcher.after_backward(c, part.model.embedding_unit());
}

}  // namespace

void join_pass(Ctx& c, Model& model, const LayerRange& layers, const RecomputePlan& recompute, bool backward,
               LayerWatcher& watcher) {
  const ModelPart part(model, layers);
  note_progress();
  if (backward == part.is_last()) join_forward(c, part);
  if (!backward) return;
  model.parameters().clear_grads();
  join_backward(c, part, recompute, watcher);
}

}  // namespace temper
