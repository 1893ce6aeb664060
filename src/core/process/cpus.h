#pragma once
// What the system lets this process have of the machine's processors.

#include <cstdint>
#include <string>
#include <vector>

namespace temper {

/// Processor time that a control group may use, processors at a time; all processes in it share that.
struct CpuQuota {
  uint64_t group = 0;  // equal for processes of one group
  double cores = 0;
};

struct Cpus {
  std::vector<int> cores;        // of the affinity mask, as Linux numbers them
  std::vector<CpuQuota> quotas;  // of all groups around this process that have one (cgroup v1 and v2)
};

/// `root`: in front of /proc and /sys, where quotas are looked for.
Cpus cpus_of_process(const std::string& root = "");

/// Processors of this machine that are switched on.
int cores_online();

}  // namespace temper
