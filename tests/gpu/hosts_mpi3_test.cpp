// Three ranks: on two GPUs, of two hosts of which one has two ranks.

#include "tests/gpu/device_collectives.h"
#include "tests/gpu/nccl_ranks.h"

const char* temper::expected_carrier() { return carrier_of_all(); }

int main(int argc, char** argv) { return temper::run_tests_over_nccl(argc, argv, 3); }
