// Two ranks with a GPU each that write into each other's memory.

#include "tests/gpu/gpu_ranks.h"
#include "tests/gpu/peer_exchanges.h"

const char* temper::expected_carrier() { return carrier_of_all(); }
std::unique_ptr<temper::Collectives> temper::collectives_of_gpus(Comm&) { return chosen_collectives(); }

int main(int argc, char** argv) { return temper::run_tests_on_gpus(argc, argv, 2); }
