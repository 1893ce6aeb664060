// Two ranks with a GPU each; skipped where there is one.

#include <cstdlib>

#include "tests/gpu/device_collectives.h"

const char* temper::expected_carrier() { return "NCCL"; }

int main(int argc, char** argv) {
  const std::vector<int> gpus = temper::device::find_gpus().gpus;
  if (gpus.empty()) return 1;
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const size_t own = rank != nullptr && std::string(rank) == "1" ? 1 : 0;
  if (gpus.size() < 2) {
    std::printf("[  SKIPPED ] 1 test: two GPUs are needed\n");
    return 0;
  }
  temper::device::select_gpu(gpus[own]);
  return temper::run_tests_on_ranks(argc, argv, 2);
}
