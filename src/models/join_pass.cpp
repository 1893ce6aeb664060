#include "src/models/join_pass.h"

namespace temper {
namespace {

void join(Ctx& c, const ModelPart& part, const std::vector<UnitStep>& steps, LayerWatcher* watcher) {
  for (const UnitStep& step : steps) {
    enter(c, part.model, step);
    if (step.layer >= 0 && part.model.passes_together())
      part.model.layer(step.layer).join(c, step.kind == UnitStep::Kind::layer_backward);
    leave(c, step, watcher);
  }
}

}  // namespace

void join_forward(Ctx& c, const ModelPart& part) {
  join(c, part, announced_order(part, {}, /*backward=*/false), nullptr);
}

void join_pass(Ctx& c, Model& model, const LayerRange& layers, const RecomputePlan& recompute, bool backward,
               LayerWatcher* watcher) {
  const ModelPart part(model, layers);
  if (backward == part.is_last()) join_forward(c, part);
  if (backward) join(c, part, announced_order(part, recompute, /*backward=*/true), watcher);
}

}  // namespace temper
