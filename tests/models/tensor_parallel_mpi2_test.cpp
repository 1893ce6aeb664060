#include "tests/models/tensor_parallel.h"

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }
