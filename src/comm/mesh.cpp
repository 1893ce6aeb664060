#include "src/comm/mesh.h"

#include <algorithm>

namespace temper {

Mesh::Mesh(const MpiSession& mpi, const std::vector<int>& ranks, MeshShape shape, Device device,
           double wait_limit_seconds) {
  CHECK(shape.tp * shape.cp * shape.dp * shape.pp == static_cast<int>(ranks.size()),
        "a mesh of {} x {} x {} x {} for {} ranks", shape.tp, shape.cp, shape.dp, shape.pp, ranks.size());
  const auto me = std::find(ranks.begin(), ranks.end(), mpi.rank()) - ranks.begin();
  const bool member = me < std::ssize(ranks);
  int stride = 1;
  for (const Axis axis : kAxes) {
    const int along = shape.along(axis), rank = static_cast<int>(me) / stride % along;
    // Ranks that differ in this coordinate alone have one color.
    const int color = static_cast<int>(me) - rank * stride;
    const auto at = static_cast<size_t>(axis);
    axes_[at] = mpi.make_collectives(member ? color : -1, rank, device, kAxisNames[at], wait_limit_seconds);
    controls_[at] = mpi.make_comm(member ? color : -1, rank, wait_limit_seconds);
    stride *= along;
  }
  const int number = static_cast<int>(me), copies = shape.cp * shape.dp, copy = number / shape.tp % copies;
  model_ = mpi.make_comm(member ? copy : -1, number, wait_limit_seconds);
  const int team = number % (shape.tp * copies) / (shape.tp * shape.cp);
  team_ = mpi.make_comm(member ? team : -1, number, wait_limit_seconds);
  all_ = mpi.make_comm(member ? 0 : -1, number, wait_limit_seconds);
  if (shape.cp == 1) return;
  const int part = number % shape.tp + number / (shape.tp * copies) * shape.tp;
  replicas_ = mpi.make_collectives(member ? part : -1, copy, device, "cp x dp", wait_limit_seconds);
}

}  // namespace temper
