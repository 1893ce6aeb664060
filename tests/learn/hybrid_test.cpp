// A small hybrid model learns the demo's task from its careless teacher and by GRPO, with rewards of its own
// responses and of those that weights of a step before have made.

#include "tests/learn/demo_runs.h"

namespace temper {
namespace {

class HybridModels : public DemoRuns, public ::testing::WithParamInterface<int> {};

TEST_P(HybridModels, LearnTheDemo) {
  const int seed = GetParam();
  const std::string start = taught("hybrid", seed);
  EXPECT_GE(learned("hybrid", fmt::format("seed{}-lag0", seed), seed, start, /*on_policy=*/true, ""), 0.9);
  EXPECT_GE(learned("hybrid", fmt::format("seed{}-lag1", seed), seed, start, /*on_policy=*/false,
                    "run.max_policy_lag=1 roles.trainer.ranks='\"0\"' roles.rollout.ranks='\"1\"'"),
            0.9);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HybridModels, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
