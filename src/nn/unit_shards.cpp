#include "src/nn/unit_shards.h"

namespace temper {

ShardedUnits::ShardedUnits(const std::vector<Unit>& units, const UnitShards& shards, DType dtype, Arena& kept,
                           Arena& windows)
    : units_(units), shards_(shards) {
  int64_t elements = 0, tied = 0, most = 0;
  for (const Unit& unit : units_) {
    begin_.push_back(elements);
    elements += shards_.own(unit).size();
    int64_t& window = unit.tied ? tied : most;
    window = std::max(window, unit.range.size());
  }
  kept_ = kept.zeros({elements}, dtype);
  windows_ = windows.zeros({tied + most}, dtype);
}

Tensor ShardedUnits::window(const Unit& unit) const {
  const int64_t size = unit.range.size();
  return unit.tied ? rows(windows_, 0, size) : rows(windows_, windows_.size() - size, windows_.size());
}

Tensor ShardedUnits::kept(int64_t first, int64_t size) const {
  const size_t at = unit_index(units_, first);
  const int64_t begin = begin_[at] + first - units_[at].range.begin - shards_.own(units_[at]).begin;
  return rows(kept_, begin, begin + size);
}

Tensor ShardedUnits::kept_of(const Unit& unit) const {
  const FlatRange own = shards_.own(unit);
  if (own.size() == 0) return rows(kept_, 0, 0);
  return kept(unit.range.begin + own.begin, own.size());
}

size_t unit_index(const std::vector<Unit>& units, int64_t element) {
  const auto after = std::upper_bound(units.begin(), units.end(), element,
                                      [](int64_t e, const Unit& u) { return e < u.range.end; });
  return static_cast<size_t>(after - units.begin()) - (after == units.end() ? 1 : 0);
}

}  // namespace temper
