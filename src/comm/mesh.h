#pragma once
// The ranks of a role as a grid with named axes; tensors and control of each. Rank = tp_i + tp (cp_i + cp
// (dp_i + dp pp_i)): what sends most is next to each other.

#include <array>
#include <memory>
#include <vector>

#include "src/comm/collectives.h"
#include "src/comm/mpi_comm.h"

namespace temper {

enum class Axis { tp, cp, dp, pp };
inline constexpr std::array kAxes{Axis::tp, Axis::cp, Axis::dp, Axis::pp};
inline constexpr std::array kAxisNames{"tp", "cp", "dp", "pp"};

/// Ranks along each axis; their product is the number of ranks.
struct MeshShape {
  int tp = 1, cp = 1, dp = 1, pp = 1;
  int along(Axis axis) const { return std::array{tp, cp, dp, pp}[static_cast<size_t>(axis)]; }
};

class Mesh {
 public:
  /// Every rank of the world calls it, with the same arguments. Tensors of `device`: host memory goes by MPI,
  /// that of ranks with a GPU each as comm/gpu/gpu_transport.h says, of ranks that share one through pinned
  /// host memory. A wait beyond the limit is Exit::hang.
  Mesh(const MpiSession& mpi, const std::vector<int>& ranks, MeshShape shape, Device device,
       double wait_limit_seconds);

  /// Only on its ranks.
  Collectives& on(Axis axis) { return *axes_[static_cast<size_t>(axis)]; }
  Comm& control(Axis axis) { return *controls_[static_cast<size_t>(axis)]; }
  /// Those that have the same part of the model, along cp and dp: what gradients are summed over.
  Collectives& replicas() { return replicas_ ? *replicas_ : on(Axis::dp); }
  /// Those along tp, cp and pp: they have one whole model together, and the same tokens.
  Comm& team() { return *team_; }
  /// Those that have one whole model together: tp neighbours, stage after stage.
  Comm& model() { return *model_; }
  /// All of its ranks.
  Comm& all() { return *all_; }

 private:
  std::array<std::unique_ptr<Collectives>, kAxes.size()> axes_;
  std::array<std::unique_ptr<Comm>, kAxes.size()> controls_;
  std::unique_ptr<Collectives> replicas_;  // null: as those of dp
  std::unique_ptr<Comm> model_, team_, all_;
};

}  // namespace temper
