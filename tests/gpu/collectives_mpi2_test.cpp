// Two ranks that NCCL carries between.

#include "tests/gpu/device_collectives.h"
#include "tests/gpu/nccl_ranks.h"

const char* temper::expected_carrier() { return "NCCL"; }

int main(int argc, char** argv) { return temper::run_tests_over_nccl(argc, argv, 2); }
