// Loaded into the program (LD_PRELOAD): takes SIGHUP for itself before main, as UCX does where Open MPI
// brings it along.

#include <csignal>

namespace {

void ignore(int) {}
[[gnu::constructor]] void take() { ::signal(SIGHUP, ignore); }

}  // namespace
