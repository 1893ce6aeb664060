#pragma once
// The processes below a process, as Linux lists them.

#include <sys/types.h>

#include <vector>

namespace temper {

/// Children of all threads of a process; of a subreaper also those that were orphaned below it. None where
/// the process has ended.
std::vector<pid_t> children_of(pid_t parent);

}  // namespace temper
