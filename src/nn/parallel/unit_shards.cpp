#include "src/nn/parallel/unit_shards.h"

#include <array>

namespace temper {

namespace {

size_t window_number(const std::vector<Unit>& units, const Unit& unit) {
  if (unit.tied) return 0;
  const bool end = unit.number == units.front().number || unit.number == units.back().number;
  return end ? 1 : 2 + static_cast<size_t>(unit.number % 2);
}

}  // namespace

DType dtype_of(const Unit& unit, DType storage) { return unit.wide ? accumulate_dtype(storage) : storage; }

int64_t places_of(const Unit& unit, int64_t elements, DType storage) {
  return elements * dtype_size(dtype_of(unit, storage)) / dtype_size(storage);
}

Tensor unit_view(const Tensor& flat, int64_t begin, const Unit& unit, int64_t first, int64_t size) {
  const int64_t at = begin + places_of(unit, first, flat.dtype);
  Tensor view = rows(flat, at, at + places_of(unit, size, flat.dtype));
  view.dtype = dtype_of(unit, flat.dtype);
  view.dims[0] = size;
  return view;
}

ShardedUnits::ShardedUnits(const std::vector<Unit>& units, const UnitShards& shards, DType dtype, Arena& kept,
                           Arena& windows, bool trained)
    : units_(units), shards_(shards) {
  std::array<int64_t, 4> sizes{};
  int64_t elements = 0, in_windows = 0, in_window = 0;
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    const bool has = unit.trained || !trained;
    begin_.push_back(elements);
    elements += has ? places_of(unit, shards_.own(unit).size(), dtype) : 0;
    if (i > 0 && units_[i - 1].number != unit.number) in_window = 0;
    window_.push_back(in_window);  // behind others of its number
    in_window += has ? places_of(unit, unit.range.size(), dtype) : 0;
    int64_t& size = sizes[window_number(units_, unit)];
    size = std::max(size, in_window);
  }
  std::array<int64_t, 4> begins{};
  for (size_t i = 0; i < sizes.size(); in_windows += sizes[i++]) begins[i] = in_windows;
  for (size_t i = 0; i < units_.size(); ++i) window_[i] += begins[window_number(units_, units_[i])];
  kept_ = kept.zeros({elements}, dtype);
  windows_ = windows.zeros({in_windows}, dtype);
}

Tensor ShardedUnits::window(const Unit& unit) const {
  const int64_t begin = window_[unit_index(units_, unit.range.begin)];
  return unit_view(windows_, begin, unit, 0, unit.range.size());
}

Tensor ShardedUnits::kept(int64_t first, int64_t size) const {
  const size_t at = unit_index(units_, first);
  const int64_t in_shard = first - units_[at].range.begin - shards_.own(units_[at]).begin;
  return unit_view(kept_, begin_[at], units_[at], in_shard, size);
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
