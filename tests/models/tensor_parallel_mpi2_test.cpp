#include "tests/models/tensor_parallel.h"

temper::Device temper::device_of_split_models() { return temper::Device::cpu; }

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }
