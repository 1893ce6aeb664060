#pragma once
// MPI: the session of the process, and what it makes: Comm, Collectives, Mailbox. The only files that include
// mpi.h are mpi_*.cpp.

#include <memory>
#include <string>
#include <vector>

#include "src/comm/collectives.h"
#include "src/comm/comm.h"
#include "src/comm/mailbox.h"
#include "src/core/check.h"

namespace temper {

/// MPI_Init .. MPI_Finalize of this process. A process alone (no launcher) is a world of one rank, without
/// MPI (comm/alone/one_rank.h): several of them share nothing. Left by an exception it finalizes only if all
/// ranks leave within seconds (they failed alike): MPI_Finalize would wait for ranks that wait for this one.
/// Otherwise MPI stays up, for abort_all_ranks. Left in order it waits for the other ranks, however long they
/// are at work; a MPI_Finalize that takes longer than the limit after that is said on stderr and ends the
/// process with Exit::hang.
class MpiSession {
 public:
  static constexpr double kEndSeconds = 60;

  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Ranks that share this host's memory, this one included.
  int ranks_on_node() const { return ranks_on_node_; }
  /// A Comm over `ranks` of the world (ascending); every rank of the world calls it, with the same list. Null
  /// on ranks outside of the list.
  std::unique_ptr<Comm> make_comm(const std::vector<int>& ranks, double wait_limit_seconds) const;
  /// Those of the ranks that call with the same color, as make_collectives.
  std::unique_ptr<Comm> make_comm(int color, int key, double wait_limit_seconds) const;
  std::unique_ptr<Comm> make_comm_of_all(double wait_limit_seconds) const;
  /// Over the ranks that share this host's memory; every rank of the world calls it.
  std::unique_ptr<Comm> make_comm_of_host(double wait_limit_seconds) const;
  /// Those of the ranks that call with the same color (not negative; others get null), by ascending key;
  /// every rank of the world calls it. `axis` is what the ranks are along, for reports.
  std::unique_ptr<Collectives> make_collectives(int color, int key, Device device, const std::string& axis,
                                                double wait_limit_seconds) const;
  /// Every rank of the world calls it.
  std::unique_ptr<Mailbox> make_mailbox(double wait_limit_seconds) const;
  static std::string library_version();

 private:
  bool all_ranks_leave(double limit_seconds);
  void finalize();
  struct Farewell;
  std::unique_ptr<Farewell> farewell_;  // null: a process alone, without MPI
  int rank_ = 0, size_ = 1, ranks_on_node_ = 1;
};

/// MPI was started and not finalized.
bool mpi_is_up();
/// MPI was started and finalized: after an error, only where all ranks leave together.
bool mpi_has_ended();
/// Ends every rank of the job with `code`; does nothing in a process without MPI.
void abort_all_ranks(Exit code);

}  // namespace temper
