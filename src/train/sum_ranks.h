#pragma once
// The ranks over which the gradients of a unit are summed, and which share the state of its optimizer: as the
// unit says.

#include <functional>
#include <set>
#include <vector>

#include "src/comm/mesh.h"
#include "src/nn/parallel/unit_shards.h"

namespace temper {

class SumRanks {
 public:
  /// All units over the same ranks.
  SumRanks(Collectives& all) : of_([&all](AxisSet) -> Collectives& { return all; }) {}
  /// This rank's groups in a mesh, which lasts longer.
  explicit SumRanks(const Mesh& mesh)
      : of_([&mesh](AxisSet axes) -> Collectives& { return mesh.tensors(axes); }) {}
  /// This rank's group over some axes.
  explicit SumRanks(std::function<Collectives&(AxisSet)> of) : of_(std::move(of)) {}

  Collectives& of(AxisSet axes) const { return of_(axes); }
  Collectives& of(const Unit& unit) const { return of_(unit.summed_over); }
  /// By this rank over all groups that these units name, so far.
  int64_t bytes_sent(const std::vector<Unit>& units) const {
    std::set<const Collectives*> groups;
    for (const Unit& unit : units) groups.insert(&of(unit));
    int64_t bytes = 0;
    for (const Collectives* group : groups) bytes += group->bytes_sent();
    return bytes;
  }

 private:
  std::function<Collectives&(AxisSet)> of_;
};

}  // namespace temper
