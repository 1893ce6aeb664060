// Three ranks that share a GPU.

#include "tests/gpu/device_collectives.h"

const char* temper::expected_carrier() { return "MPI, by way of host memory"; }
std::unique_ptr<temper::Collectives> temper::collectives_of_gpus(Comm&) { return chosen_collectives(); }

int main(int argc, char** argv) {
  if (temper::device::find_gpus().gpus.empty()) return 1;
  temper::device::select_gpu(0);
  return temper::run_tests_on_ranks(argc, argv, 3);
}
