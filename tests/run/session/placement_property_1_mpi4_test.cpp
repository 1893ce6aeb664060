// The first 250 random runs.

#include "tests/run/session/placement_property.h"

namespace temper {

TEST_F(RandomPlacements, EndWithExactVersionsWithinTheirBounds) { expect_right(0); }

}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }
