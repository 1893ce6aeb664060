#include "src/nn/unit_shards.h"

#include <array>

namespace temper {

namespace {

/// Units with the same number share a window.
size_t window_number(const std::vector<Unit>& units, size_t unit) {
  if (units[unit].tied) return 0;
  const bool end = unit == 0 || unit + 1 == units.size();
  return end ? 1 : 2 + unit % 2;
}

}  // namespace

ShardedUnits::ShardedUnits(const std::vector<Unit>& units, const UnitShards& shards, DType dtype, Arena& kept,
                           Arena& windows)
    : units_(units), shards_(shards) {
  std::array<int64_t, 4> sizes{};
  int64_t elements = 0, in_windows = 0;
  for (size_t i = 0; i < units_.size(); ++i) {
    begin_.push_back(elements);
    elements += shards_.own(units_[i]).size();
    int64_t& size = sizes[window_number(units_, i)];
    size = std::max(size, units_[i].range.size());
  }
  std::array<int64_t, 4> begins{};
  for (size_t i = 0; i < sizes.size(); in_windows += sizes[i++]) begins[i] = in_windows;
  for (size_t i = 0; i < units_.size(); ++i) window_.push_back(begins[window_number(units_, i)]);
  kept_ = kept.zeros({elements}, dtype);
  windows_ = windows.zeros({in_windows}, dtype);
}

Tensor ShardedUnits::window(const Unit& unit) const {
  const int64_t begin = window_[unit_index(units_, unit.range.begin)];
  return rows(windows_, begin, begin + unit.range.size());
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
