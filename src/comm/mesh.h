#pragma once
// The ranks of a role as a grid with named axes; tensors and control of each group of them.

#include <map>
#include <memory>
#include <vector>

#include "src/comm/collectives.h"
#include "src/comm/grid.h"
#include "src/comm/mpi_comm.h"

namespace temper {

class Mesh {
 public:
  /// Every rank of the world calls it, with the same arguments. Tensors of `device`: host memory goes by MPI,
  /// that of ranks with a GPU each as comm/gpu/gpu_transport.h says, of ranks that share one through pinned
  /// host memory. A wait beyond the limit is Exit::hang.
  Mesh(const MpiSession& mpi, const std::vector<int>& ranks, const Grid& grid, Device device,
       double wait_limit_seconds);

  // Only on its ranks.
  const Grid& grid() const { return grid_; }
  /// What exchanges tensors in this rank's group over these axes: a row of kTensorGroups. Where experts are
  /// not cut apart their groups are others'.
  Collectives& tensors(AxisSet axes) const {
    if (axes.of_experts() && !grid_.cuts_experts_apart())
      return *tensors_.at(axes == Axis::ep ? AxisSet(Axis::tp) : kReplicas);
    return *tensors_.at(axes);
  }
  /// This rank's group over axes of kControlGroups; groups of the same ranks are one.
  Comm& control(AxisSet axes) const { return *controls_.at(grid_.wide(axes)); }

 private:
  Grid grid_;
  std::map<AxisSet, std::unique_ptr<Collectives>> tensors_;
  std::map<AxisSet, std::unique_ptr<Comm>> controls_;  // by the axes with more than one rank
};

}  // namespace temper
