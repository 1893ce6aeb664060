// The collectives on 2 ranks.

#include "tests/comm/collectives.h"

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }
