#pragma once
// How a rank of a training run reaches the others.

#include <functional>

#include "src/comm/mpi_comm.h"
#include "src/run/session/placement.h"

namespace temper {

/// Its members stand in the order in which they are built, and use those above.
struct RunLinks {
  /// Every rank of the run calls it. `why_stop`: what asks this rank to stop (EndOfRun); empty: nothing.
  RunLinks(const RunTask& task, const MpiSession& mpi, const Placement& placement,
           std::function<std::string()> why_stop);

  bool trains() const { return trainers != nullptr; }
  /// This rank has state, and takes part in checkpoints.
  bool keeps() const { return keepers != nullptr; }
  /// The first trainer rank writes what the run leaves.
  bool writes() const { return trainers && trainers->rank() == 0; }
  /// Returns when the run has ended; true: before its last step. A rank without roles passes on what it is
  /// asked meanwhile.
  bool wait_for_end();

  std::unique_ptr<Comm> world;
  Device device;  // that this rank computes on
  Meshes meshes;
  Comm* trainers;                       // null on other ranks
  std::unique_ptr<Comm> other_keepers;  // null where only trainer ranks have state
  Comm* keepers;                        // all ranks that have state, the trainer's first; null on others
  std::unique_ptr<Mailbox> mailbox;
  EndOfRun end;
  GroupExchange groups;
  WeightSync weights;
};

}  // namespace temper
