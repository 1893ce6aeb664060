#include "src/models/layer_kinds.h"

#include <algorithm>
#include <map>

#include "src/models/parameter_specs.h"

namespace temper {
namespace {

std::string layer_prefix(int64_t layer) { return layer_unit_name(layer) + "."; }

/// What tells a parameter of one layer from that of another, but for the number.
std::string kind_of(const ParamSpec& spec, const std::string& prefix) {
  std::string text = spec.name.substr(prefix.size()) + (spec.trained ? "" : ", not trained");
  for (const AxisRow& row : spec.summed_over.rows())
    if (spec.summed_over.has(row.axis)) text += std::string(", over ") + row.name;
  for (const int64_t size : spec.shape) text += fmt::format(", {}", size);
  for (const HfPart& part : spec.parts) text += fmt::format(", {} of {} heads", part.rows, part.heads);
  return text + "\n";
}

}  // namespace

std::vector<int64_t> layer_kinds(const ModelConfig& config) {
  std::vector<std::string> texts(static_cast<size_t>(config.num_layers));
  for (const ParamSpec& spec : parameter_specs(config))
    if (const int64_t layer = spec.unit_number - 1; layer >= 0 && layer < config.num_layers)
      texts[static_cast<size_t>(layer)] += kind_of(spec, layer_prefix(layer));
  std::map<std::string, int64_t> first;
  std::vector<int64_t> kinds;
  for (const std::string& text : texts)
    kinds.push_back(first.try_emplace(text, std::ssize(kinds)).first->second);
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
    const std::string from = layer_prefix(layers[i]), to = layer_prefix(static_cast<int64_t>(i));
    if (config.moe.layers.contains(layers[i])) some.moe.layers.insert(static_cast<int64_t>(i));
    if (config.delta.layers.contains(layers[i])) some.delta.layers.insert(static_cast<int64_t>(i));
    for (auto at = config.frozen.lower_bound(from); at != config.frozen.end() && at->starts_with(from); ++at)
      some.frozen.insert(to + at->substr(from.size()));
  }
  return some;
}

}  // namespace temper
