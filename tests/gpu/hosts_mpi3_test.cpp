// Three ranks: on two GPUs, of two hosts of which one has two ranks.

#include "tests/gpu/device_collectives.h"
#include "tests/gpu/gpu_ranks.h"

const char* temper::expected_carrier() { return carrier_of_all(); }

int main(int argc, char** argv) { return temper::run_tests_on_gpus(argc, argv, 3); }
