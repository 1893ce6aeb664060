#include "src/models/layer_pass.h"

#include <array>

namespace temper {

Residual forward_layers(Ctx& c, const Model& model, const Batch& b, const Residual& x, PassSaved* saved) {
  const LayerRange& layers = model.layers();
  if (saved) saved->layers.resize(static_cast<size_t>(layers.end - layers.begin));
  // A layer's addend dies in the next one; its stream is what that one's backward reads.
  std::array<Residual, 2> memory;
  for (Residual& r : memory) r.delta = c.scratch.like(x.stream);
  if (!saved)
    for (Residual& r : memory) r.stream = c.scratch.like(x.stream);
  Residual from = x;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    Residual& to = memory[static_cast<size_t>(layer % 2)];
    if (saved) to.stream = c.saved->like(x.stream);
    ArenaScope scope(c.scratch);
    model.layer_forward(c, b, layer, to, from,
                        saved ? &saved->layers[static_cast<size_t>(layer - layers.begin)] : nullptr);
    from = to;
  }
  return from;
}

Tensor backward_layers(Ctx& c, const Model& model, const Batch& b, const CTensor& dy, const PassSaved& saved,
                       LayerWatcher* watcher) {
  const LayerRange& layers = model.layers();
  const std::array<Tensor, 2> memory{c.scratch.like(dy), c.scratch.like(dy)};
  CTensor from = dy;
  Tensor to;
  for (int64_t layer = layers.end; layer-- > layers.begin;) {
    to = memory[static_cast<size_t>(layer % 2)];
    ArenaScope scope(c.scratch);
    model.layer_backward(c, b, layer, to, from, saved.layers[static_cast<size_t>(layer - layers.begin)]);
    if (watcher) watcher->after_backward(c, model.layer_unit(layer));
    from = to;
  }
  return to;
}

Tensor forward_pass(Ctx& c, const Model& model, const Batch& b, PassSaved* saved) {
  const Residual x = forward_layers(c, model, b, model.begin(c, b, saved != nullptr), saved);
  return model.end(c, x, saved ? &saved->norm : nullptr);
}

void backward_pass(Ctx& c, const Model& model, const Batch& b, const CTensor& dhidden, const PassSaved& saved,
                   LayerWatcher* watcher) {
  ArenaScope all(c.scratch);
  const Tensor dlast = c.scratch.like(dhidden);
  model.end_backward(c, dlast, dhidden, saved.norm);
  if (watcher) watcher->after_backward(c, model.head_unit());
  const Tensor dfirst = backward_layers(c, model, b, dlast, saved, watcher);
  model.begin_backward(c, b, dfirst);
  if (watcher) watcher->after_backward(c, model.embedding_unit());
}

}  // namespace temper
