#pragma once
// Errors of MPI calls and of waits beyond their limit, for the mpi_*.cpp files.

#include "src/core/check.h"

namespace temper {

/// `code` != MPI_SUCCESS is Exit::retry: a peer or the network is gone.
void check_mpi(int code, const char* call);

/// Exit::hang that names the wait.
[[noreturn]] void fail_hang(int rank, const char* what, const std::string& where, double waited_seconds,
                            double limit_seconds);

}  // namespace temper
