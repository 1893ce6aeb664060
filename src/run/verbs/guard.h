#pragma once
// The one place that catches. An error becomes one block on stderr and, in a job of several ranks, MPI_Abort
// with the error's exit code, so that no rank waits for one that is gone.

#include <functional>

namespace temper {

/// Returns the process's exit code: that of `body`, or of the error it threw.
int run_guarded(const std::function<int()>& body);

}  // namespace temper
