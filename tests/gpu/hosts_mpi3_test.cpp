// Three ranks of two hosts, of which one has two ranks: peer memory within it, NCCL between them. On one GPU
// each is alone on its host.

#include "tests/gpu/device_collectives.h"
#include "tests/gpu/gpu_ranks.h"

constexpr int kRanksOfAHost = 2;

const char* temper::expected_carrier() { return carrier_of_all(kRanksOfAHost); }
std::unique_ptr<temper::Collectives> temper::collectives_of_gpus(Comm&) { return chosen_collectives(); }

int main(int argc, char** argv) { return temper::run_tests_on_gpus(argc, argv, 3, kRanksOfAHost); }
