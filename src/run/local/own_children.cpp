#include "src/run/local/own_children.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "src/core/process/children.h"
#include "src/core/stopwatch.h"

namespace temper {

OwnChildren::OwnChildren() : before_(children_of(::getpid())) { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> OwnChildren::own() const {
  std::vector<pid_t> own = children_of(::getpid());
  std::erase_if(own, [&](pid_t p) { return std::find(before_.begin(), before_.end(), p) != before_.end(); });
  return own;
}

bool OwnChildren::end(pid_t first) const {
  constexpr double kByThemselves = 0.5, kAtMost = 3;  // seconds
  bool ended = false;
  for (const Stopwatch waited; waited.seconds() < kAtMost;) {
    const std::vector<pid_t> left = own();
    if (left.empty()) break;
    for (const pid_t process : left) {
      if (process == first) ::kill(-process, SIGKILL);
      if (waited.seconds() > kByThemselves) ::kill(process, SIGKILL);
      ended |= ::waitpid(process, nullptr, WNOHANG) == process && process == first;
    }
    ::usleep(2000);
  }
  return ended;
}

}  // namespace temper
