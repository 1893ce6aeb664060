// Three ranks: on two GPUs, of two hosts of which one has two ranks.

#include "tests/gpu/device_collectives.h"
#include "tests/gpu/gpu_ranks.h"

const char* temper::expected_carrier() { return carrier_of_all(); }
std::unique_ptr<temper::Collectives> temper::collectives_of_gpus(Comm&) { return chosen_collectives(); }

int main(int argc, char** argv) { return temper::run_tests_on_gpus(argc, argv, 3); }
