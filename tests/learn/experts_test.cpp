// A small mixture of experts learns the demo's task from its careless teacher and by GRPO: whatever the seed,
// and with the bits of the rollout in every step of the trainer.

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

class Experts : public RunFixture {};

TEST_F(Experts, LearnTheDemo) {
  const std::string root = std::filesystem::current_path().string();
  ASSERT_EQ(program_.shell(fmt::format("ln -s {0}/conf conf && {0}/tools/demo_data.sh runs/demo/data", root)),
            0)
      << output();
  for (const int seed : {1, 2, 3}) {
    const std::string sft = fmt::format("sft{}", seed), grpo = fmt::format("grpo{}", seed);
    ASSERT_EQ(program_.run(fmt::format("init --config conf/models/demo-moe.json --tokenizer conf/demo "
                                       "--out {}-model --seed {}",
                                       sft, seed)),
              0)
        << output();
    ASSERT_EQ(program_.run_ranks(2, fmt::format("train conf/demo_moe_sft.toml run.name={0} run.seed={1} "
                                                "model.path={0}-model log.samples_per_step=0",
                                                sft, seed)),
              0)
        << output();
    ASSERT_EQ(
        program_.run_ranks(2, fmt::format("train conf/demo_moe_grpo.toml run.name={} run.seed={} "
                                          "model.path=runs/{}/export/step-000700 log.samples_per_step=0",
                                          grpo, seed, sft)),
        0)
        << output();
    double accuracy = 0;
    for (const Json& line : program_.metrics(grpo)) {
      accuracy = line.value("val/heldout/score/mean", accuracy);
      if (line.contains("actor/rollout_logprob_diff_max")) {
        EXPECT_EQ(line.at("actor/rollout_logprob_diff_max"), 0.0) << grpo << " " << line.at("step");
      }
    }
    std::fprintf(stderr, "seed %d: held-out accuracy %.3f\n", seed, accuracy);
    EXPECT_GE(accuracy, 0.9) << grpo;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
