// A small hybrid model learns the demo's task from its careless teacher and by GRPO, with rewards of its own
// responses and of those that weights of a step before have made.

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

class HybridModels : public RunFixture, public ::testing::WithParamInterface<int> {
 protected:
  double learned(int seed, int lag, const std::string& start, const std::string& roles) {
    const std::string name = fmt::format("seed{}-lag{}", seed, lag);
    EXPECT_EQ(program_.run_ranks(
                  2, fmt::format("train conf/demo_hybrid_grpo.toml run.name={} run.seed={} model.path={} "
                                 "run.max_policy_lag={} log.samples_per_step=0 {}",
                                 name, seed, start, lag, roles)),
              0)
        << output();
    double accuracy = 0;
    for (const Json& line : program_.metrics(name)) {
      accuracy = line.value("val/heldout/score/mean", accuracy);
      if (lag == 0 && line.contains("actor/rollout_logprob_diff_max")) {
        EXPECT_EQ(line.at("actor/rollout_logprob_diff_max"), 0.0) << name << " " << line.at("step");
      }
    }
    EXPECT_FALSE(logged(name, "under the same weights")) << name;
    std::fprintf(stderr, "%s: held-out accuracy %.3f\n", name.c_str(), accuracy);
    return accuracy;
  }
};

TEST_P(HybridModels, LearnTheDemo) {
  const int seed = GetParam();
  const std::string root = std::filesystem::current_path().string();
  ASSERT_EQ(program_.shell(fmt::format("ln -s {0}/conf conf && {0}/tools/demo_data.sh runs/demo/data", root)),
            0)
      << output();
  const std::string sft = fmt::format("sft{}", seed);
  ASSERT_EQ(program_.run(fmt::format("init --config conf/models/demo-hybrid.json --tokenizer conf/demo "
                                     "--out {}-model --seed {}",
                                     sft, seed)),
            0)
      << output();
  ASSERT_EQ(program_.run_ranks(2, fmt::format("train conf/demo_hybrid_sft.toml run.name={0} run.seed={1} "
                                              "model.path={0}-model log.samples_per_step=0",
                                              sft, seed)),
            0)
      << output();
  const std::string start = fmt::format("runs/{}/export/step-000700", sft);
  EXPECT_GE(learned(seed, 0, start, ""), 0.9);
  EXPECT_GE(learned(seed, 1, start, "roles.trainer.ranks='\"0\"' roles.rollout.ranks='\"1\"'"), 0.9);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HybridModels, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
