#include "src/comm/mesh.h"

#include <algorithm>

namespace temper {
namespace {

/// "dp", "cp x dp": the axes that have several ranks, or all of these where none has.
std::string name_of(const Grid& grid, AxisSet axes) {
  const AxisSet wide = grid.wide(axes) == AxisSet() ? axes : grid.wide(axes);
  std::string names;
  for (const AxisRow& row : axes.rows())
    if (wide.has(row.axis)) names += (names.empty() ? "" : " x ") + std::string(row.name);
  return names;
}

}  // namespace

Mesh::Mesh(const MpiSession& mpi, const std::vector<int>& ranks, const Grid& grid, Device device,
           double wait_limit_seconds)
    : grid_(grid) {
  CHECK(grid.size() == static_cast<int>(ranks.size()), "a grid of {} for {} ranks", grid.size(),
        ranks.size());
  const auto number = static_cast<int>(std::find(ranks.begin(), ranks.end(), mpi.rank()) - ranks.begin());
  const bool member = number < std::ssize(ranks);
  const auto color = [&](AxisSet axes) { return member ? grid.group_of(number, axes) : -1; };
  for (const AxisSet axes : kTensorGroups) {
    if (axes.of_experts() && !grid.cuts_experts_apart()) continue;
    tensors_[axes] = mpi.make_collectives(color(axes), grid.at(number, axes), device, name_of(grid, axes),
                                          wait_limit_seconds);
  }
  for (const AxisSet axes : kControlGroups)
    if (const auto [at, is_new] = controls_.try_emplace(grid.wide(axes)); is_new)
      at->second = mpi.make_comm(color(axes), grid.at(number, axes), wait_limit_seconds);
}

}  // namespace temper
