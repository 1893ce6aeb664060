#include "src/core/process/cpus.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "src/core/process/control_groups.h"

namespace temper {
namespace {

/// The call fails while the set is smaller than the kernel's own.
std::vector<int> affinity_mask() {
  constexpr size_t kMostCores = 1 << 16;
  std::vector<int> cores;
  for (size_t count = CPU_SETSIZE; count <= kMostCores && cores.empty(); count *= 2) {
    cpu_set_t* const set = CPU_ALLOC(count);
    const size_t bytes = CPU_ALLOC_SIZE(count);
    if (::sched_getaffinity(0, bytes, set) == 0)
      for (size_t i = 0; i < bytes * 8; ++i)
        if (CPU_ISSET_S(i, bytes, set)) cores.push_back(static_cast<int>(i));
    CPU_FREE(set);
  }
  return cores;
}

/// Processors at a time; 0 without a limit.
double quota_of(const ControlGroup& group) {
  double quota = 0, period = 0;
  if (group.unified) {  // "max 100000" or "150000 100000"
    if (!(std::ifstream(group.folder + "/cpu.max") >> quota >> period)) return 0;
  } else {  // -1: no limit
    std::ifstream(group.folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(group.folder + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

Cpus cpus_of_process(const std::string& root) {
  Cpus cpus{affinity_mask(), {}};
  for (const ControlGroup& group : control_groups("cpu", root)) {
    struct stat status {};
    const double cores = quota_of(group);
    if (cores > 0 && ::stat(group.folder.c_str(), &status) == 0)
      cpus.quotas.push_back({static_cast<uint64_t>(status.st_ino), cores});
  }
  return cpus;
}

int cores_online() { return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)); }

}  // namespace temper
