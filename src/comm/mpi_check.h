#pragma once
// Errors of MPI calls, and waits with a limit, for what talks to other ranks.

#include <functional>

#include "src/core/check.h"

namespace temper {

/// `code` != MPI_SUCCESS is Exit::retry: a peer or the network is gone.
void check_mpi(int code, const char* call);

/// Exit::hang that names the wait.
[[noreturn]] void fail_hang(int rank, const char* what, const std::string& where, double waited_seconds,
                            double limit_seconds);

/// Messages under way move on, those of this process and those that others wait for; nothing without MPI. On
/// the thread that uses MPI.
void mpi_progress();

/// Until `done` says so. Polls, and after a while sleeps between polls: ranks that share a core leave it to
/// the one that works. Beyond the limit Exit::hang that names `what` and `where`.
void wait_until(const std::function<bool()>& done, int rank, const char* what, const std::string& where,
                double limit_seconds);

}  // namespace temper
