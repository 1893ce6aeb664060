// A small mixture of experts learns the demo's task from its careless teacher and by GRPO: whatever the seed,
// and with the bits of the rollout in every step of the trainer.

#include "tests/learn/demo_runs.h"

namespace temper {
namespace {

class Experts : public DemoRuns, public ::testing::WithParamInterface<int> {};

TEST_P(Experts, LearnTheDemo) {
  const int seed = GetParam();
  const std::string start = taught("moe", seed);
  EXPECT_GE(learned("moe", fmt::format("seed{}", seed), seed, start, /*on_policy=*/true, ""), 0.9);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Experts, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
