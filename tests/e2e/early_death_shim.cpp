// Loaded into the program (LD_PRELOAD): rank 1 is killed before main, when the others have begun.

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace {

[[gnu::constructor]] void die_early() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr || std::strcmp(rank, "1") != 0) return;
  ::usleep(700'000);
  ::raise(SIGKILL);
}

}  // namespace
