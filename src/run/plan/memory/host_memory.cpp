#include "src/run/plan/memory/host_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "src/core/check.h"
#include "src/core/process/control_groups.h"
#include "src/core/text/short_number.h"
#include "src/run/plan/memory/memory.h"

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

}  // namespace

HostMemory host_memory(const std::string& root) {
  HostMemory memory{meminfo(root, "MemTotal"), meminfo(root, "MemAvailable")};
  for (const ControlGroup& group : control_groups("memory", root))
    hold_to(memory, number_in(group.folder + (group.unified ? "/memory.max" : "/memory.limit_in_bytes")),
            number_in(group.folder + (group.unified ? "/memory.current" : "/memory.usage_in_bytes")));
  return memory;
}

MemoryLimit share_of_host(int ranks_on_node) {
  const int64_t total = host_memory().total;
  return {total / ranks_on_node,
          fmt::format("this machine's {}, {} on it", gib_text(total), count_text(ranks_on_node, "rank"))};
}

void require_free_host_memory(const RunPlan& plan, int ranks_on_node) {
  const HostMemory memory = host_memory();
  const int64_t peak = host_peak_bytes(plan);
  if (memory.total == 0 || peak <= memory.available / ranks_on_node) return;
  fail(Exit::environment,
       {.what = "too little memory is free",
        .where = count_text(ranks_on_node, "rank") + " on this node",
        .why = fmt::format("a rank needs up to {}, {} of {} are free for all of them", gib_text(peak),
                           gib_text(memory.available), gib_text(memory.total)),
        .fix = "end what else runs here, start fewer ranks on a node, or lower what `temper check` shows as "
               "large"});
}

}  // namespace temper
