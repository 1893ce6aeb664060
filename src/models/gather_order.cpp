#include "src/models/gather_order.h"

namespace temper {

void expect_forward(const ModelPart& part) {
  const Model& model = part.model;
  std::vector<const Unit*> units;
  if (part.is_first()) units.push_back(&model.embedding_unit());
  for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer)
    units.push_back(&model.layer_unit(layer));
  if (part.is_last() && model.config().tie_word_embeddings) units.push_back(&model.embedding_unit());
  if (part.is_last()) units.push_back(&model.head_unit());
  model.expect_gathers(std::move(units));
}

void expect_backward(const ModelPart& part, const RecomputePlan& recompute) {
  std::vector<const Unit*> units;
  const std::vector<RecomputePlan::Run> runs = recompute.runs(part.layers);
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const LayerRange& layers = run->layers;
    for (int64_t layer = layers.begin; run->recompute == Recompute::full && layer < layers.end; ++layer)
      units.push_back(&part.model.layer_unit(layer));
    for (int64_t layer = layers.end; layer-- > layers.begin;) units.push_back(&part.model.layer_unit(layer));
  }
  part.model.expect_gathers(std::move(units));
}

}  // namespace temper
