#include "src/models/pass_order.h"

#include "src/core/process/progress.h"

namespace temper {
namespace {

using Kind = UnitStep::Kind;

std::vector<UnitStep> forward_order(const ModelPart& part, const RecomputePlan& recompute) {
  const Model& model = part.model;
  std::vector<UnitStep> steps;
  if (part.is_first()) steps.push_back({.kind = Kind::begin, .reads = {model.embedding_units()}});
  const std::vector<RecomputePlan::Run> runs = recompute.runs(part.layers);
  for (size_t run = 0; run < runs.size(); ++run)
    for (int64_t layer = runs[run].layers.begin; layer < runs[run].layers.end; ++layer)
      steps.push_back({.kind = Kind::layer,
                       .layer = layer,
                       .run = runs[run],
                       .run_number = run,
                       .reads = {model.layer_units(layer)}});
  if (!part.is_last()) return steps;
  UnitStep end{.kind = Kind::end, .reads = {model.head_units()}};  // for the head, too
  if (model.config().tie_word_embeddings) end.reads.insert(end.reads.begin(), model.embedding_units());
  steps.push_back(std::move(end));
  return steps;
}

/// Runs of layers that are computed again are gathered once more in between.
std::vector<UnitStep> backward_order(const ModelPart& part, const RecomputePlan& recompute) {
  const Model& model = part.model;
  std::vector<UnitStep> steps;
  if (part.is_last()) steps.push_back({.kind = Kind::end_backward, .filled = model.head_units()});
  const std::vector<RecomputePlan::Run> runs = recompute.runs(part.layers);
  for (size_t run = runs.size(); run-- > 0;) {
    const LayerRange& layers = runs[run].layers;
    const auto add = [&](Kind kind, int64_t layer) -> UnitStep& {
      return steps.emplace_back(UnitStep{.kind = kind,
                                         .layer = layer,
                                         .run = runs[run],
                                         .run_number = run,
                                         .reads = {model.layer_units(layer)}});
    };
    for (int64_t layer = layers.begin; runs[run].again() && layer < layers.end; ++layer)
      add(Kind::layer_again, layer);
    for (int64_t layer = layers.end; layer-- > layers.begin;)
      add(Kind::layer_backward, layer).filled = model.layer_units(layer);
    steps.back().ends_run = true;
  }
  UnitStep& begin = steps.emplace_back(UnitStep{.kind = Kind::begin_backward});
  if (part.is_first() || (part.is_last() && model.has_tied_copy())) begin.filled = model.embedding_units();
  return steps;
}

}  // namespace

std::vector<UnitStep> pass_order(const ModelPart& part, const RecomputePlan& recompute, bool backward) {
  return backward ? backward_order(part, recompute) : forward_order(part, recompute);
}

std::vector<UnitStep> announced_order(const ModelPart& part, const RecomputePlan& recompute, bool backward) {
  std::vector<UnitStep> steps = pass_order(part, recompute, backward);
  std::vector<UnitGroup> units;
  for (const UnitStep& step : steps) units.insert(units.end(), step.reads.begin(), step.reads.end());
  part.model.expect_gathers(std::move(units));
  return steps;
}

void enter(Ctx& c, const Model& model, const UnitStep& step) {
  note_progress();
  for (const UnitGroup units : step.reads) model.gather(c, units);
}

void leave(Ctx& c, const UnitStep& step, LayerWatcher* watcher) {
  for (const Unit& unit : step.filled)
    if (watcher) watcher->after_backward(c, unit);
}

}  // namespace temper
