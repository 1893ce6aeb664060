#include "src/core/process/host.h"

#include <unistd.h>

namespace temper {

std::string this_host() {
  char name[256] = "unknown";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace temper
