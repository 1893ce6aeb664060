#include "src/models/layer_kinds.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "src/models/parameter_specs.h"

namespace temper {
namespace {

std::string layer_prefix(int64_t layer) { return layer_unit_name(layer) + "."; }

/// All that tells a layer from another one of its model.
struct LayerTraits {
  bool experts = false, delta = false;
  std::set<std::string> frozen;  // its parameters that nothing trains, without the layer's name
  auto operator<=>(const LayerTraits&) const = default;
};

LayerTraits traits_of(const ModelConfig& config, int64_t layer) {
  LayerTraits traits{config.moe.layers.contains(layer), config.delta.layers.contains(layer), {}};
  const std::string prefix = layer_prefix(layer);
  for (auto at = config.frozen.lower_bound(prefix); at != config.frozen.end() && at->starts_with(prefix);
       ++at)
    traits.frozen.insert(at->substr(prefix.size()));
  return traits;
}

}  // namespace

std::vector<int64_t> layer_kinds(const ModelConfig& config) {
  std::map<LayerTraits, int64_t> first;
  std::vector<int64_t> kinds;
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    kinds.push_back(first.try_emplace(traits_of(config, layer), layer).first->second);
  return kinds;
}

std::vector<LayerKind> layer_kinds(const ModelConfig& config, const LayerRange& layers) {
  const std::vector<int64_t> all = layer_kinds(config);
  std::vector<LayerKind> kinds;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const int64_t kind = all[static_cast<size_t>(layer)];
    const auto found =
        std::find_if(kinds.begin(), kinds.end(), [&](const LayerKind& k) { return k.layer == kind; });
    (found == kinds.end() ? kinds.emplace_back(LayerKind{kind}) : *found).count += 1;
  }
  return kinds;
}

ModelConfig with_layers(const ModelConfig& config, const std::vector<int64_t>& layers) {
  ModelConfig some = config;
  some.num_layers = std::ssize(layers);
  some.moe.layers.clear();
  some.delta.layers.clear();
  std::erase_if(some.frozen, [](const std::string& name) { return name.starts_with("layers."); });
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    const LayerTraits traits = traits_of(config, layers[i]);
    if (traits.experts) some.moe.layers.insert(layer);
    if (traits.delta) some.delta.layers.insert(layer);
    for (const std::string& name : traits.frozen) some.frozen.insert(layer_prefix(layer) + name);
  }
  return some;
}

}  // namespace temper
