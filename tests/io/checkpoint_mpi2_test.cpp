// Checkpoints written on 2 ranks.

#include "tests/io/checkpoint_ranks.h"

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }
