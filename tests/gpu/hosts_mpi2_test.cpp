// Two ranks, each alone on its host: NCCL carries everything, whatever GPUs the machine has.

#include "tests/gpu/device_collectives.h"
#include "tests/gpu/gpu_ranks.h"

const char* temper::expected_carrier() { return "NCCL"; }
std::unique_ptr<temper::Collectives> temper::collectives_of_gpus(Comm&) { return chosen_collectives(); }

int main(int argc, char** argv) { return temper::run_tests_on_gpus(argc, argv, 2, /*per_host=*/1); }
