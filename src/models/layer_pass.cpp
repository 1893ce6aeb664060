#include "src/models/layer_pass.h"

#include <array>

#include "src/core/process/progress.h"
#include "src/models/gather_order.h"
#include "src/ops/elementwise.h"

namespace temper {

namespace {

/// The stream after a run of layers. Of a run that is computed again only the stream before it is kept.
Residual forward_run(Ctx& c, const ModelPart& part, const Batch& b, const Residual& x,
                     const std::array<Residual, 2>& memory, const RecomputePlan::Run& run,
                     std::vector<LayerSaved>* saved) {
  Residual from = x;
  for (int64_t layer = run.layers.begin; layer < run.layers.end; ++layer) {
    const bool keeps = saved && (run.recompute != Recompute::full || layer == run.layers.begin);
    // A layer's addend dies in the next one; its stream is what that one's backward reads.
    note_progress();
    Residual to = memory[static_cast<size_t>(layer % 2)];
    if (saved && run.recompute != Recompute::full) to.stream = c.saved->like(x.stream);
    ArenaScope scope(c.scratch);
    part.model.layer_forward(c, b, layer, to, from,
                             keeps ? &saved->at(static_cast<size_t>(layer - part.layers.begin)) : nullptr,
                             run.recompute);
    from = to;
  }
  return from;
}

std::array<Residual, 2> stream_memory(Ctx& c, const CTensor& like, bool streams) {
  std::array<Residual, 2> memory;
  for (Residual& r : memory) {
    r.delta = c.scratch.like(like);
    if (streams) r.stream = c.scratch.like(like);
  }
  return memory;
}

}  // namespace

Residual forward_layers(Ctx& c, const ModelPart& part, const Batch& b, const Residual& x, PassSaved* saved) {
  const LayerRange& layers = part.layers;
  if (saved) saved->layers.assign(static_cast<size_t>(layers.end - layers.begin), {});
  const RecomputePlan plan = saved ? saved->recompute : RecomputePlan{};
  const bool streams = !saved || plan.granularity == Recompute::full;
  const std::array<Residual, 2> memory = stream_memory(c, x.stream, streams);
  Residual from = x;
  for (const RecomputePlan::Run& run : plan.runs(layers)) {
    if (saved) saved->runs.push_back(c.saved->mark());
    from = forward_run(c, part, b, from, memory, run, saved ? &saved->layers : nullptr);
  }
  return from;
}

Tensor backward_layers(Ctx& c, const ModelPart& part, const Batch& b, const CTensor& dy,
                       const PassSaved& saved, LayerWatcher* watcher) {
  const std::array<Tensor, 2> memory{c.scratch.like(dy), c.scratch.like(dy)};
  CTensor from = dy;
  Tensor to;
  const std::vector<RecomputePlan::Run> runs = saved.recompute.runs(part.layers);
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const ArenaScope scope(c.scratch);
    const auto index = [&](int64_t layer) { return static_cast<size_t>(layer - part.layers.begin); };
    const bool again = run->recompute == Recompute::full;
    std::vector<LayerSaved> computed;
    if (again) {
      computed.resize(saved.layers.size());
      Residual x;
      static_cast<CTensor&>(x.stream) = saved.layers[index(run->layers.begin)].attn_norm.x;
      forward_run(c, part, b, x, stream_memory(c, dy, false), {run->layers, Recompute::none}, &computed);
    }
    for (int64_t layer = run->layers.end; layer-- > run->layers.begin;) {
      note_progress();
      to = memory[static_cast<size_t>(layer % 2)];
      const ArenaScope temporary(c.scratch);
      part.model.layer_backward(c, b, layer, to, from, (again ? computed : saved.layers)[index(layer)]);
      if (watcher) watcher->after_backward(c, part.model.layer_unit(layer));
      from = to;
    }
    c.saved->release(saved.runs[static_cast<size_t>(runs.rend() - run - 1)]);
  }
  return to;
}

namespace {

/// The stream after the model's layers, with the last addend beside it.
Residual forward_all(Ctx& c, const ModelPart& part, const Batch& b, const Residual& x, PassSaved* saved) {
  expect_forward(part);
  return forward_layers(c, part, b, part.is_first() ? part.model.begin(c, b, saved != nullptr) : x, saved);
}

}  // namespace

Tensor forward_pass(Ctx& c, const ModelPart& part, const Batch& b, PassSaved* saved, const Residual& x) {
  return part.model.end(c, b, forward_all(c, part, b, x, saved), saved ? &saved->norm : nullptr);
}

void forward_stage(Ctx& c, const ModelPart& part, const Batch& b, const Residual& x, PassSaved* saved,
                   const Tensor& stream) {
  ArenaScope scope(c.scratch);
  const Residual y = forward_all(c, part, b, x, saved);
  if (stream.dim(0) > 0) add(c, stream, y.stream, y.delta);
}

void backward_pass(Ctx& c, const ModelPart& part, const Batch& b, const CTensor& dhidden,
                   const PassSaved& saved, LayerWatcher* watcher, const Tensor& dx) {
  ArenaScope all(c.scratch);
  expect_backward(part, saved.recompute);
  CTensor dlast = dhidden;
  if (part.is_last()) {
    const Tensor dnorm = c.scratch.like(saved.norm.x);
    part.model.end_backward(c, b, dnorm, dhidden, saved.norm);
    dlast = dnorm;
    if (watcher) watcher->after_backward(c, part.model.head_unit());
  }
  const Tensor dfirst = backward_layers(c, part, b, dlast, saved, watcher);
  if (part.is_first())
    part.model.begin_backward(c, b, dfirst);
  else
    device::copy(c.lane, dx.raw(), dfirst.data, dx.bytes());
  if (watcher && (part.is_first() || (part.is_last() && part.model.has_tied_copy())))
    watcher->after_backward(c, part.model.embedding_unit());
}

}  // namespace temper
