#pragma once
// The ranks of a role as a grid with named axes; tensors and control of each. Rank = tp_i + tp (dp_i + dp
// pp_i): what sends most is next to each other.

#include <array>
#include <memory>
#include <vector>

#include "src/comm/collectives.h"
#include "src/comm/mpi_comm.h"

namespace temper {

enum class Axis { tp, dp, pp };
inline constexpr std::array kAxisNames{"tp", "dp", "pp"};

/// Ranks along each axis; their product is the number of ranks.
struct MeshShape {
  int tp = 1, dp = 1, pp = 1;
  int along(Axis axis) const { return axis == Axis::tp ? tp : axis == Axis::dp ? dp : pp; }
};

class Mesh {
 public:
  /// Every rank of the world calls it, with the same arguments. Tensors of `device`: host memory goes by MPI,
  /// that of a GPU through pinned host memory. A wait beyond the limit is Exit::hang.
  Mesh(const MpiSession& mpi, const std::vector<int>& ranks, MeshShape shape, Device device,
       double wait_limit_seconds);

  /// Only on its ranks.
  Collectives& on(Axis axis) { return *axes_[static_cast<size_t>(axis)]; }
  Comm& control(Axis axis) { return *controls_[static_cast<size_t>(axis)]; }
  /// Those that have one whole model together: tp neighbours, stage after stage.
  Comm& model() { return *model_; }

 private:
  std::array<std::unique_ptr<Collectives>, 3> axes_;
  std::array<std::unique_ptr<Comm>, 3> controls_;
  std::unique_ptr<Comm> model_;
};

}  // namespace temper
