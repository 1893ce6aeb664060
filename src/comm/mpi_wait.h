#pragma once
// The wait of the mpi_*.cpp files, which alone see MPI's types.

#include <mpi.h>

#include <string>
#include <vector>

namespace temper {

/// Until all are done, as wait_until (mpi_check.h); progress.
void mpi_wait(std::vector<MPI_Request>& requests, int rank, const char* what, const std::string& where,
              double limit_seconds);

}  // namespace temper
