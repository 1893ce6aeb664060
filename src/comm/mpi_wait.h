#pragma once
// What the mpi_*.cpp files share, which alone see MPI's types.

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "src/comm/comm.h"

namespace temper {

/// The communicator is its own from here on.
std::unique_ptr<Comm> make_mpi_comm(MPI_Comm comm, double limit_seconds);

/// Until all are done, as wait_until (mpi_check.h); progress.
void mpi_wait(std::vector<MPI_Request>& requests, int rank, const char* what, const std::string& where,
              double limit_seconds);

}  // namespace temper
