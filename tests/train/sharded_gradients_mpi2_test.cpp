// Shards of gradients on 2 ranks.

#include "tests/train/sharded_gradients.h"

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }
