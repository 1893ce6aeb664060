#pragma once
// The wait of the mpi_*.cpp files, which alone see MPI's types.

#include <mpi.h>

#include <string>
#include <vector>

namespace temper {

/// Until all are done. Polls, and after a while sleeps between polls: ranks that share a core leave it to the
/// one that works. Beyond the limit Exit::hang that names `what` and `where`.
void mpi_wait(std::vector<MPI_Request>& requests, int rank, const char* what, const std::string& where,
              double limit_seconds);

}  // namespace temper
