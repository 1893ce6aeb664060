#include "src/models/stages.h"

#include <algorithm>

#include "src/models/parameter_specs.h"

namespace temper {
namespace {

/// What the head costs, in layers.
double head_cost(const ModelConfig& config, StageWork work) {
  int64_t layer = 0;
  for (const ParamSpec& spec : parameter_specs(config))
    if (spec.unit == layer_unit_name(0)) layer += spec.size();
  const double products = work == StageWork::update ? 4.0 / 3 : 1;
  return products * static_cast<double>(config.vocab_size * config.hidden_size) / static_cast<double>(layer);
}

}  // namespace

std::vector<LayerRange> balanced_stages(const ModelConfig& config, int stages, StageWork work) {
  CHECK(stages >= 1 && stages <= config.num_layers, "{} stages for {} layers", stages, config.num_layers);
  const int64_t layers = config.num_layers, others = stages - 1;
  if (others == 0) return {{0, layers}};
  ModelConfig one = config;
  one.num_layers = 1;
  const double head = head_cost(one, work);
  const auto slowest = [&](int64_t last) {
    const auto most = static_cast<double>((layers - last + others - 1) / others);
    return std::max(most, static_cast<double>(last) + head);
  };
  int64_t last = 1;
  for (int64_t n = 2; n <= layers - others; ++n)
    if (slowest(n) <= slowest(last)) last = n;
  std::vector<LayerRange> ranges;
  for (int64_t s = 0, begin = 0; s < others; ++s) {
    const int64_t rest = layers - last, end = begin + rest / others + (s < rest % others ? 1 : 0);
    ranges.push_back({begin, end});
    begin = end;
  }
  ranges.push_back({layers - last, layers});
  return ranges;
}

std::vector<LayerRanges> parts_of_stages(const std::vector<LayerRange>& all, int stages) {
  std::vector<LayerRanges> parts(static_cast<size_t>(stages));
  for (size_t i = 0; i < all.size(); ++i) parts[i % parts.size()].push_back(all[i]);
  return parts;
}

std::vector<UnitSet> stage_units(const std::vector<LayerRanges>& stages) {
  std::vector<UnitSet> units;
  for (const LayerRanges& layers : stages) units.push_back(units_of(layers, stages.back().back().end));
  return units;
}

}  // namespace temper
