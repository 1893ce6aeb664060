#include "src/models/layer_pass.h"

#include <array>
#include <optional>

#include "src/ops/elementwise.h"

namespace temper {
namespace {

/// The stream through layers, one after the other. A layer's addend dies in the next one; its stream is what
/// that one's backward reads.
class Stream {
 public:
  /// `streams`: some layer keeps nothing. `again`: in a backward.
  Stream(Ctx& c, const ModelPart& part, const Batch& b, const Residual& x, bool streams, bool again = false)
      : c_(c), part_(part), b_(b), at_(x), again_(again) {
    for (Residual& r : memory_) r = {streams ? c.scratch.like(x.stream) : Tensor{}, c.scratch.like(x.stream)};
  }
  /// After the next layer. Of a run that is computed again only the stream before it is kept.
  const Residual& through(int64_t layer, const RecomputePlan::Run& run, PassSaved* saved) {
    const bool first = saved && layer == run.layers.begin, keeps = saved && !run.again();
    if (first) saved->runs.push_back({c_.saved->mark(), {}});
    Residual to = memory_[static_cast<size_t>(layer % 2)];
    if (keeps) to.stream = c_.saved->like(at_.stream);
    const ArenaScope scope(c_.scratch);
    const Tensor sum = at_.delta.empty() ? at_.stream : c_.memory(first || keeps).like(at_.stream);
    Keep keep = keeps ? run.keep(*c_.saved) : Keep{};
    keep.router = RouterNotes::of_layer(b_.routers, layer);
    if (again_) keep.router = keep.router.again();
    part_.model.layer(layer).forward(c_, b_, to, at_, sum,
                                     keeps ? &saved->layers[part_.index(layer)] : nullptr, keep);
    if (first) saved->runs.back().stream = sum;
    return at_ = to;
  }

 private:
  Ctx& c_;
  const ModelPart& part_;
  const Batch& b_;
  Residual at_;
  bool again_;
  std::array<Residual, 2> memory_;
};

/// The stream after the layers, with the last addend beside it, and of the last part the hidden states.
struct Forward {
  Residual stream;
  Tensor hidden;
};
Forward forward(Ctx& c, const ModelPart& part, const Batch& b, const Residual& x, PassSaved* saved) {
  const RecomputePlan plan = saved ? saved->recompute : RecomputePlan{};
  if (saved) saved->layers.assign(part.index(part.layers.end), {});
  Forward made{x, {}};
  std::optional<Stream> stream;
  for (const UnitStep& step : announced_order(part, plan, /*backward=*/false)) {
    enter(c, part.model, step);
    if (step.kind == UnitStep::Kind::begin) {
      made.stream = part.model.begin(c, b, saved != nullptr);
    } else if (step.kind == UnitStep::Kind::end) {
      made.hidden = part.model.end(c, b, made.stream, saved ? &saved->norm : nullptr);
    } else {
      if (!stream) stream.emplace(c, part, b, made.stream, !saved || plan.granularity == Recompute::full);
      made.stream = stream->through(step.layer, step.run, saved);
    }
  }
  return made;
}

/// A run of layers that goes backward.
struct RunBackward {
  std::array<Tensor, 2> memory;  // of all runs: gradients between layers
  PassSaved again = {};          // what is computed again
  std::optional<ArenaScope> scratch = {};
  std::optional<Stream> stream = {};
};

/// The gradient before the layer; what a run has is given back after its last step.
CTensor backward_layer(Ctx& c, const ModelPart& part, const Batch& b, const UnitStep& step,
                       const PassSaved& saved, const CTensor& dy, RunBackward& r) {
  if (!r.scratch) {
    r.scratch.emplace(c.scratch);
    r.again.layers.assign(saved.layers.size(), {});
    if (step.run.again())
      r.stream.emplace(c, part, b, Residual{saved.runs[step.run_number].stream, {}}, /*streams=*/false,
                       /*again=*/true);
  }
  if (step.kind == UnitStep::Kind::layer_again)
    return r.stream->through(step.layer, {step.run.layers, Recompute::none}, &r.again), dy;
  const ArenaScope temporary(c.scratch);
  const Tensor& dx = r.memory[static_cast<size_t>(step.layer % 2)];
  const LayerSaved& kept = (step.run.again() ? r.again : saved).layers[part.index(step.layer)];
  part.model.layer(step.layer).backward(c, b, dx, dy, kept);
  return dx;
}

}  // namespace

Tensor forward_pass(Ctx& c, const ModelPart& part, const Batch& b, PassSaved* saved, const Residual& x) {
  return forward(c, part, b, x, saved).hidden;
}

void forward_stage(Ctx& c, const ModelPart& part, const Batch& b, const Residual& x, PassSaved* saved,
                   const Tensor& stream) {
  ArenaScope scope(c.scratch);
  const Residual y = forward(c, part, b, x, saved).stream;
  if (stream.dim(0) > 0) add(c, stream, y.stream, y.delta);
}

void backward_pass(Ctx& c, const ModelPart& part, const Batch& b, const CTensor& dhidden,
                   const PassSaved& saved, LayerWatcher* watcher, const Tensor& dx) {
  ArenaScope all(c.scratch);
  CTensor dy = dhidden;
  const CTensor& like = saved.runs.front().stream;
  RunBackward run{{c.scratch.like(like), c.scratch.like(like)}};
  for (const UnitStep& step : announced_order(part, saved.recompute, /*backward=*/true)) {
    enter(c, part.model, step);
    if (step.kind == UnitStep::Kind::end_backward) {
      const Tensor dnorm = c.scratch.like(saved.norm.x);
      part.model.end_backward(c, b, dnorm, dy, saved.norm);
      dy = dnorm;
    } else if (step.kind != UnitStep::Kind::begin_backward) {
      dy = backward_layer(c, part, b, step, saved, dy, run);
    } else if (part.is_first()) {
      part.model.begin_backward(c, b, dy);
    } else {
      device::copy(c.lane, dx.raw(), dy.data, dx.bytes());
    }
    leave(c, step, watcher);
    if (!step.ends_run) continue;
    run.stream.reset(), run.scratch.reset();
    c.saved->release(saved.runs[step.run_number].begin);
  }
}

}  // namespace temper
