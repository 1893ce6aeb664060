// An update over stages is cut into micro-batches that keep them busy, unless the config says how large they
// are or each would cost a sum of all gradients.

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

constexpr int kSamples = 210;
constexpr int64_t kLeast = 4096;  // tokens of an automatic micro-batch

class StageMicrobatches : public RunFixture {
 protected:
  void SetUp() override {
    std::string data, count;
    for (int i = 1; i <= 60; ++i) count += fmt::format(" {}", i);
    for (int i = 0; i < kSamples; ++i)
      data += fmt::format("{{\"prompt\":\"Count to 60, {}:\",\"response\":\"{}\"}}\n", i, count);
    const std::string keys = fmt::format(
        "\nrun.name = \"x\"\nalgorithm.name = \"sft\"\nmodel.path = \"long\"\nrun.steps = 1\n"
        "model.context_tokens = 16384\ntrain.samples_per_update = {}\n",
        kSamples);
    prepare(keys, data);
    prepare_long_model();
  }
  /// The metrics of its step.
  Json train(const std::string& name, int ranks, const std::string& keys) {
    const std::string all = fmt::format("train run.toml run.name={} {}", name, keys);
    EXPECT_EQ(program_.run_ranks(ranks, all), 0) << output();
    return program_.metrics(name).front();
  }
  static int64_t microbatches(const Json& metrics) {
    return static_cast<int64_t>(metrics.at("batch/num_microbatches").get<double>());
  }
};

TEST_F(StageMicrobatches, AreAsManyAsKeepStagesBusy) {
  const Json one = train("one", 1, ""), cut = train("cut", 2, "roles.trainer.pp=2"),
             whole = train("whole", 2, "roles.trainer.pp=2 train.max_tokens_per_microbatch=16384"),
             shared = train("shared", 4, "roles.trainer.pp=2 roles.trainer.zero=2");
  const auto tokens = static_cast<int64_t>(one.at("perf/total_num_tokens").get<double>());
  ASSERT_GT(tokens, 4 * kLeast);
  ASSERT_LT(tokens, 8 * kLeast);  // an eighth is too small
  EXPECT_EQ(microbatches(one), (tokens + 16383) / 16384);
  EXPECT_GE(microbatches(cut), tokens / kLeast);
  EXPECT_LE(microbatches(cut), tokens / kLeast + 2);
  EXPECT_EQ(microbatches(whole), microbatches(one));
  EXPECT_EQ(microbatches(shared), 2);  // one of each rank of dp
  for (const Json& other : {cut, whole, shared})
    EXPECT_NEAR(other.at("train/loss").get<double>(), one.at("train/loss").get<double>(), 1e-5);
}

TEST_F(StageMicrobatches, AreInThePlan) {
  const auto plan_says = [&](const std::string& keys) {
    EXPECT_EQ(program_.run("check run.toml --all --ranks 4 roles.trainer.pp=2 " + keys), 0) << output();
    return says("of stages, at least");
  };
  EXPECT_TRUE(plan_says(""));
  EXPECT_FALSE(plan_says("train.max_tokens_per_microbatch=16384"));
  EXPECT_FALSE(plan_says("roles.trainer.zero=2"));
  EXPECT_TRUE(plan_says("roles.trainer.zero=2 roles.trainer.tp=2"));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
