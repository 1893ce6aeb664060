#pragma once
// The control groups (cgroups) of this process: what a container or a batch system lets it have.

#include <string>
#include <vector>

namespace temper {

struct ControlGroup {
  std::string folder;    // with the group's files; those of a limit that is not set may be missing
  bool unified = false;  // cgroup v2, else v1
};

/// Those that hold this process for a controller ("cpu", "memory"), its own first and then those above, each
/// of which holds it too. `root`: in front of /proc and /sys.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root = "");

}  // namespace temper
