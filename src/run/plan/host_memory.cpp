#include "src/run/plan/host_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "src/core/check.h"
#include "src/run/plan/memory.h"

namespace temper {
namespace {

/// The number that a file of the kernel holds; nothing for "max" and for files that are not there.
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value) || value < 0) return std::nullopt;
  return value;
}

/// Bytes of a line like "MemTotal:  16384 kB".
int64_t meminfo(const std::string& root, const std::string& key) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kib = 0;
    if (words >> name >> kib && name == key + ":") return kib * 1024;
  }
  return 0;
}

void hold_to(HostMemory& memory, const std::optional<int64_t>& limit, const std::optional<int64_t>& used) {
  if (!limit || *limit >= memory.total) return;
  memory.total = *limit;
  memory.available = std::min(memory.available, std::max<int64_t>(0, *limit - used.value_or(0)));
}

/// A group is held by its own limit and by those above it.
void hold_to_group(HostMemory& memory, const std::string& mount, std::string group, const char* limit,
                   const char* used) {
  for (;; group.resize(group.find_last_of('/'))) {
    hold_to(memory, number_in(mount + group + limit), number_in(mount + group + used));
    if (group.find('/') == std::string::npos) return;
  }
}

}  // namespace

HostMemory host_memory(const std::string& root) {
  HostMemory memory{meminfo(root, "MemTotal"), meminfo(root, "MemAvailable")};
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "9:memory:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty())
      hold_to_group(memory, root + "/sys/fs/cgroup", path == "/" ? "" : path, "/memory.max",
                    "/memory.current");
    else if (controllers == "memory")
      hold_to_group(memory, root + "/sys/fs/cgroup/memory", path == "/" ? "" : path, "/memory.limit_in_bytes",
                    "/memory.usage_in_bytes");
  }
  return memory;
}

MemoryLimit share_of_host(int ranks_on_node) {
  const int64_t total = host_memory().total;
  return {total / ranks_on_node,
          fmt::format("this machine's {}, {} rank(s) on it", gib_text(total), ranks_on_node)};
}

void require_free_host_memory(const RunPlan& plan, int ranks_on_node) {
  const HostMemory memory = host_memory();
  const int64_t peak = host_peak_bytes(plan);
  if (memory.total == 0 || peak <= memory.available / ranks_on_node) return;
  fail(Exit::environment,
       {.what = "too little memory is free",
        .where = fmt::format("{} rank(s) on this node", ranks_on_node),
        .why = fmt::format("a rank needs up to {}, {} of {} are free for all of them", gib_text(peak),
                           gib_text(memory.available), gib_text(memory.total)),
        .fix = "end what else runs here, start fewer ranks on a node, or lower what `temper check` shows as "
               "large"});
}

}  // namespace temper
