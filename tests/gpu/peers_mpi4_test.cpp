// Four ranks that write into each other's memory on however few GPUs: each has several peers at once. Kernels
// of ranks that share a GPU take turns of milliseconds.

#include "src/comm/gpu/peer_transport.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/gpu/peer_exchanges.h"

const char* temper::expected_carrier() { return "peer memory"; }
std::unique_ptr<temper::Collectives> temper::collectives_of_gpus(Comm& all) {
  std::unique_ptr<Neighbours> neighbours = Neighbours::meet(all, "this host");
  CHECK(neighbours && neighbours->all(), "ranks that do not reach each other's memory");
  return std::make_unique<Collectives>(
      make_peer_transport(std::move(neighbours), nullptr, all.rank(), all.size(), "test"));
}

int main(int argc, char** argv) { return temper::run_tests_on_gpus(argc, argv, 4); }
