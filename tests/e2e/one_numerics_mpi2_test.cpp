// One numerics on 2 ranks.

#include "tests/e2e/one_numerics.h"

int main(int argc, char** argv) { return temper::run_one_numerics(argc, argv, 2); }
