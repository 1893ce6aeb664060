// Random generations of a hybrid model, as many as it is held to: tests/rollout/hybrid_engine.h.

#include "tests/rollout/hybrid_engine.h"

namespace temper {
namespace {

TEST(HybridStates, TokensHaveTheBitsOfPackedOnes) {
  EXPECT_GT(expect_packed_bits(5000, 140, 200) + expect_packed_bits(6000, 60, 700), 100);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
