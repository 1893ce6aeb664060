#include "src/models/stages.h"

#include <algorithm>
#include <numeric>

#include "src/models/parameter_specs.h"

namespace temper {
namespace {

/// What each layer costs, and the last entry the head, in parameters that a token meets.
std::vector<double> costs_of(const ModelConfig& config, StageWork work) {
  std::vector<double> costs(static_cast<size_t>(config.num_layers) + 1);
  for (const ParamSpec& spec : parameter_specs(config))
    if (const int64_t layer = spec.unit_number - 1; layer >= 0 && layer < config.num_layers)
      costs[static_cast<size_t>(layer)] += static_cast<double>(active_size(config, spec));
  const double products = work == StageWork::update ? 4.0 / 3 : 1;
  costs.back() = products * static_cast<double>(config.vocab_size * config.hidden_size);
  return costs;
}

/// Layers that are alike: the last stage, which has the head, `last` of them, the others as evenly as they
/// go.
std::vector<LayerRange> even_stages(int64_t layers, int stages, double head) {
  const int64_t others = stages - 1;
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

/// Each stage takes layers up to a cost of `most`, but leaves one for each stage behind it; none where one of
/// them costs more.
std::vector<LayerRange> stages_within(const std::vector<double>& costs, int stages, double most) {
  const int64_t layers = std::ssize(costs) - 1;
  std::vector<LayerRange> ranges;
  int64_t at = 0;
  for (int s = 0; s < stages; ++s) {
    const int64_t begin = at, behind = stages - 1 - s;
    double cost = behind == 0 ? costs.back() : 0;
    for (; at < layers - behind && (at == begin || cost + costs[static_cast<size_t>(at)] <= most); ++at)
      cost += costs[static_cast<size_t>(at)];
    if (cost > most) return {};
    ranges.push_back({begin, at});
  }
  return at == layers ? ranges : std::vector<LayerRange>{};
}

}  // namespace

std::vector<LayerRange> balanced_stages(const ModelConfig& config, int stages, StageWork work) {
  CHECK(stages >= 1 && stages <= config.num_layers, "{} stages for {} layers", stages, config.num_layers);
  if (stages == 1) return {{0, config.num_layers}};
  const std::vector<double> costs = costs_of(config, work);
  if (std::all_of(costs.begin(), costs.end() - 1, [&](double cost) { return cost == costs.front(); }))
    return even_stages(config.num_layers, stages, costs.back() / costs.front());
  double too_little = 0, enough = std::accumulate(costs.begin(), costs.end(), 0.0);
  for (int halving = 0; halving < 64; ++halving) {
    const double most = (too_little + enough) / 2;
    (stages_within(costs, stages, most).empty() ? too_little : enough) = most;
  }
  return stages_within(costs, stages, enough);
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
