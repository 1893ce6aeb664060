#include "tests/nn/split_adapter.h"

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }
