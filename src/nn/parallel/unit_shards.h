#pragma once
// A value for each element of a model's units, of which this rank keeps its shard_range of every unit: sums
// of gradients (ZeRO-2), values while they are trained (ZeRO-3). A unit is whole in a window, which it shares
// with others: those of a step and of the next one of a pass are whole at the same time (layers in turn, the
// ends apart). A tied embedding, which head and first layer both work with, has its own.

#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/comm/grid.h"
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

/// What is gathered, summed and sharded at a time: all that a layer has, or what it has that is trained, and
/// what is not, in one type each.
struct Unit {
  std::string name;
  int64_t number = 0;
  FlatRange range;                  // of the flat buffers
  bool trained = true;              // else it has no gradients and no state of an optimizer
  AxisSet summed_over = kReplicas;  // the ranks that have this unit, whose gradients are summed
  bool tied = false;                // the head has the same parameters, or a copy of them
  bool wide = false;                // its elements are of the accumulate dtype, whatever those of others are
};
/// The type of its elements where those of others are of type `storage`.
DType dtype_of(const Unit& unit, DType storage);
/// Elements of type `storage` that as many of the unit's take the memory of.
int64_t places_of(const Unit& unit, int64_t elements, DType storage);
/// [size] of a unit whose memory begins at an element of `flat`, from its own element `first` on.
Tensor unit_view(const Tensor& flat, int64_t begin, const Unit& unit, int64_t first, int64_t size);
/// Those with one number, which a step of a pass works with.
using UnitGroup = std::span<const Unit>;

/// A rank among those that keep shards; of one rank: everything, and no windows.
struct UnitShards {
  int rank = 0, ranks = 1;
  bool of_values = false;    // as well as those of gradients
  bool never_whole = false;  // values are shards from the start: nothing trains them
  struct Among {
    int rank = 0, ranks = 1;
  };
  std::map<AxisSet, Among> others = {};  // of units that are summed over other axes than kReplicas
  FlatRange own(const Unit& unit) const {
    const auto other = others.find(unit.summed_over);
    const Among among = other == others.end() ? Among{rank, ranks} : other->second;
    return shard_range(unit.range.size(), among.rank, among.ranks);
  }
};

/// The number of the unit that has an element of the flat buffers.
size_t unit_index(const std::vector<Unit>& units, int64_t element);

class ShardedUnits {
 public:
  ShardedUnits() = default;
  /// Zeros, `trained`: of units that are trained alone. The arenas outlive it.
  ShardedUnits(const std::vector<Unit>& units, const UnitShards& shards, DType dtype, Arena& kept,
               Arena& windows, bool trained = false);

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
  std::vector<int64_t> begin_, window_;  // of each unit: where its shard's memory begins, and its window's
  Tensor kept_, windows_;
};

}  // namespace temper
