#include "src/run/plan/layout/layer_samples.h"

#include <algorithm>
#include <map>

namespace temper {

SomeLayers instead(const SomeLayers& all, std::vector<int64_t> layers) {
  const bool first = all.layers.begin == 0, last = all.layers.end == all.model.num_layers;
  const int64_t begin = first ? 0 : 1, end = begin + std::ssize(layers);
  if (!first) layers.insert(layers.begin(), layers.front());
  if (!last) layers.push_back(layers.back());
  return {with_layers(all.model, layers), {begin, end}};
}

LayerSamples samples_of(const SomeLayers& all) {
  const std::vector<LayerKind> kinds = layer_kinds(all.model, all.layers);
  std::vector<int64_t> each;
  for (const LayerKind& kind : kinds) each.push_back(kind.layer);
  LayerSamples samples{instead(all, each), {}};
  for (const LayerKind& kind : kinds) {
    if (kind.count == 1) continue;
    std::vector<int64_t> with = each;
    with.insert(std::find(with.begin(), with.end(), kind.layer), kind.layer);
    samples.more.push_back({instead(all, std::move(with)), kind.count - 1});
  }
  return samples;
}

std::vector<int64_t> stage_kind(const RolePlan& role, const ModelConfig& model, int stage) {
  std::vector<int64_t> kind{stage == 0, stage == role.pp() - 1};
  std::map<int64_t, int64_t> layers;
  const std::vector<int64_t> kinds = layer_kinds(model);
  for (const LayerRange& part : role.stages[static_cast<size_t>(stage)])
    for (int64_t layer = part.begin; layer < part.end; ++layer) ++layers[kinds[static_cast<size_t>(layer)]];
  for (const auto& [of, count] : layers) kind.insert(kind.end(), {of, count});
  return kind;
}

}  // namespace temper
