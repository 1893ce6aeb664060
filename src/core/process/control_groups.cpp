#include "src/core/process/control_groups.h"

#include <fstream>

namespace temper {

std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path" or "9:cpu,cpuacct:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (unified ? "" : "/" + controller);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    // In a container the path may be the host's, which is not there: the mount itself is the container's
    // group.
    for (;; path.resize(path.find_last_of('/'))) {
      groups.push_back({mount + path, unified});
      if (path.find('/') == std::string::npos) break;
    }
  }
  return groups;
}

}  // namespace temper
