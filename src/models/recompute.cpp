#include "src/models/recompute.h"

#include <algorithm>

namespace temper {

std::vector<RecomputePlan::Run> RecomputePlan::runs(const LayerRange& layers) const {
  const bool full = granularity == Recompute::full;
  if (!full) return {{layers, granularity}};
  std::vector<Run> list;
  const int64_t step = block ? 1 : num_layers;
  const int64_t end = block ? std::min(layers.end, layers.begin + num_layers) : layers.end;
  for (int64_t at = layers.begin; at < end; at += step)
    list.push_back({{at, std::min(at + step, end)}, Recompute::full});
  if (end < layers.end) list.push_back({{end, layers.end}, Recompute::none});
  return list;
}

Keep RecomputePlan::Run::keep(Arena& saved) const {
  if (again()) return {};
  return {.products = &saved, .rest = recompute == Recompute::none ? &saved : nullptr};
}

}  // namespace temper
