// The optimizer on one rank.

#include "tests/train/optimizer_ranks.h"

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 1); }
