#pragma once
// What this machine has for a run, as the kernel and the control groups of this process say. The plan itself
// knows nothing of machines: verbs hand it the limit.

#include <cstdint>
#include <string>

#include "src/run/plan/plan.h"

namespace temper {

struct HostMemory {
  int64_t total = 0;      // of the machine, or the least limit of the control groups (cgroup v1 and v2)
  int64_t available = 0;  // of it at this moment, page cache that can be dropped included
};

/// `root`: in front of /proc and /sys. Zeros where /proc/meminfo cannot be read: then nothing is known.
HostMemory host_memory(const std::string& root = "");

/// A rank's share of this machine's memory.
MemoryLimit share_of_host(int ranks_on_node);

/// Error(Exit::environment) where the ranks of this node need more than is free now.
void require_free_host_memory(const RunPlan& plan, int ranks_on_node);

}  // namespace temper
