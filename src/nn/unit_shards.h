#pragma once
// A value for each element of a model's units, of which this rank keeps its shard_range of every unit: sums
// of gradients (ZeRO-2), values while they are trained (ZeRO-3). A unit is whole in a window, which it shares
// with others: a unit and the next of a pass are whole at the same time (layers in turn, the ends apart). A
// tied embedding, which head and first layer both work with, has its own.

#include <limits>
#include <string>
#include <vector>

#include "src/core/arena.h"
#include "src/core/flat_range.h"

namespace temper {

/// Units of a model by their number: 0 the embedding, 1 + i layer i, then final norm and head.
struct UnitRange {
  int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
  bool has(int64_t unit) const { return unit >= begin && unit < end; }
};

/// Ranges of them: of the parts that a rank has.
struct UnitSet {
  std::vector<UnitRange> ranges = {{}};
  bool has(int64_t unit) const {
    for (const UnitRange& range : ranges)
      if (range.has(unit)) return true;
    return false;
  }
};

struct Unit {
  std::string name;
  FlatRange range;    // of the flat buffers
  bool tied = false;  // the head has the same parameters, or a copy of them
};

/// A rank among those that keep shards; of one rank: everything, and no windows.
struct UnitShards {
  int rank = 0, ranks = 1;
  bool of_values = false;    // as well as those of gradients
  bool never_whole = false;  // values are shards from the start: nothing trains them
  FlatRange own(const Unit& unit) const { return shard_range(unit.range.size(), rank, ranks); }
};

/// Of the unit that has an element of the flat buffers.
size_t unit_index(const std::vector<Unit>& units, int64_t element);

class ShardedUnits {
 public:
  ShardedUnits() = default;
  /// Zeros. The arenas outlive it.
  ShardedUnits(const std::vector<Unit>& units, const UnitShards& shards, DType dtype, Arena& kept,
               Arena& windows);

  bool empty() const { return units_.empty(); }
  Tensor window(const Unit& unit) const;
  /// [size] of what is kept, from an element of the flat buffers on, in this rank's shard of a unit.
  Tensor kept(int64_t first, int64_t size) const;
  /// This rank's shard of a unit.
  Tensor kept_of(const Unit& unit) const;
  const Tensor& all_kept() const { return kept_; }
  int64_t window_bytes() const { return windows_.bytes(); }

 private:
  std::vector<Unit> units_;
  UnitShards shards_;
  std::vector<int64_t> begin_, window_;  // of each unit: where its shard begins, and its window
  Tensor kept_, windows_;
};

}  // namespace temper
