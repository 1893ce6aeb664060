// Loaded into the program (LD_PRELOAD): the process that is no rank has a thread that takes any signal, as
// the driver of a GPU begins some.

#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace {

[[gnu::constructor]] void begin_thread() {
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return;
  std::thread([] {
    for (;;) ::pause();
  }).detach();
}

}  // namespace
