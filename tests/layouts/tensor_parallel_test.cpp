// Whole runs whose trainer ranks share the model: they begin with the bits of one rank, repeat and go on with
// their own, wherever the other roles are, and leave state that any layout takes up.

#include <cstring>

#include "tests/e2e/placed_run.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

const Placement kTp2{"tp2", 2, "roles.trainer.tp=2"}, kTp2Dp2{"tp2dp2", 4, "roles.trainer.tp=2"},
    kTp4{"tp4", 4, "roles.trainer.tp=4"}, kOne{"one", 1, ""};

class TensorParallelRun : public PlacedRun {
 protected:
  void expect_no_difference(const std::string& name) const {
    for (const Json& line : program_.metrics(name))
      EXPECT_EQ(line.at("actor/rollout_logprob_diff_max").get<double>(), 0.0) << name;
  }
  void forget_export(const std::string& name) const {
    std::filesystem::remove_all(program_.path("runs/" + name + "/export"));
  }
};

TEST_F(TensorParallelRun, BeginsWithTheBitsOfOneRank) {
  ASSERT_EQ(train(kOne, 0, "one"), 0) << output();
  const std::vector<Json> want = program_.metrics("one");
  for (const Placement& layout : {kTp2, kTp2Dp2, kTp4}) {
    ASSERT_EQ(train(layout, 0, layout.name), 0) << output();
    EXPECT_TRUE(rollouts(layout.name, 1) == rollouts("one", 1)) << layout.name;
    expect_no_difference(layout.name);
    const std::vector<Json> got = program_.metrics(layout.name);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      for (const char* key : {"actor/grad_norm", "actor/entropy"})
        EXPECT_NEAR(got[i].at(key).get<double>(), want[i].at(key).get<double>(),
                    1e-5 * want[i].at(key).get<double>())
            << layout.name << ", step " << i + 1 << ", " << key;
  }
}

/// In double, a gradient and the weights after a step are those of one rank but for the order of sums.
TEST_F(TensorParallelRun, DumpsTheGradientsOfOneRank) {
  const std::string more = "run.dtype=fp64 run.steps=1 --dump-gradients ";
  std::vector<std::string> files;
  for (const Placement& layout : {kOne, kTp2Dp2, kTp4}) {
    ASSERT_EQ(train(layout, 0, layout.name, more + "gradients-" + layout.name), 0) << output();
    files.push_back(program_.read("gradients-" + layout.name + "/update-000001.safetensors"));
    files.push_back(weights(layout.name, 1));
  }
  for (size_t i = 2; i < files.size(); ++i) {
    const std::string &got = files[i], &want = files[i % 2];
    ASSERT_EQ(got.size(), want.size());
    uint64_t header = 0;
    std::memcpy(&header, want.data(), sizeof header);
    const size_t data = sizeof header + header;
    ASSERT_EQ(got.substr(0, data), want.substr(0, data));
    const size_t item = i % 2 == 0 ? sizeof(double) : sizeof(float);  // exports are in the source's type
    double most = 0, difference = 0;
    for (size_t at = data; at < got.size(); at += item) {
      const auto number = [&](const std::string& bytes) {
        if (item == sizeof(float)) {
          float x;
          std::memcpy(&x, bytes.data() + at, item);
          return static_cast<double>(x);
        }
        double x;
        std::memcpy(&x, bytes.data() + at, item);
        return x;
      };
      most = std::max(most, std::abs(number(want)));
      difference = std::max(difference, std::abs(number(got) - number(want)));
    }
    EXPECT_GT(most, 1e-6);
    EXPECT_LE(difference, (i % 2 == 0 ? 1e-10 : 1e-7) * most) << i;
  }
}

TEST_F(TensorParallelRun, RepeatsAndGoesOnAfterEveryStep) {
  ASSERT_EQ(train(kTp2Dp2, 1, "whole"), 0) << output();
  ASSERT_EQ(train(kTp2Dp2, 1, "again"), 0) << output();
  expect_same_run("again", "whole");
  for (int step = 1; step < kSteps; step += 2) {
    const std::string name = fmt::format("after-{}", step);
    copy_until("whole", name, step);
    ASSERT_EQ(train(kTp2Dp2, 1, name), 0) << output();
    expect_same_run(name, "whole");
  }
}

TEST_F(TensorParallelRun, TheOtherRolesMayBeAnywhere) {
  const std::string every_export = "checkpoint.export_hf_every=1";
  const std::string whole = "roles.trainer.tp=2 roles.rollout.tp=1 roles.reference.tp=1 ";
  const Placement apart{
      "apart", 4,
      whole + R"(roles.rollout.ranks='"0"' roles.reference.ranks='"1"' roles.trainer.ranks='"2-3"')"},
      overlapping{
          "overlapping", 3,
          whole + R"(roles.rollout.ranks='"0-1"' roles.reference.ranks='"2"' roles.trainer.ranks='"1-2"')"};
  for (const int lag : {0, 1}) {
    const std::string first = fmt::format("tp2-{}", lag);
    ASSERT_EQ(train(kTp2, lag, first, every_export), 0) << output();
    for (const Placement& placement : {apart, overlapping}) {
      const std::string name = fmt::format("{}-{}", placement.name, lag);
      ASSERT_EQ(train(placement, lag, name, every_export), 0) << output();
      expect_same_run(first, name);
    }
  }
  expect_score_agrees(program_, "apart-1", kSteps, "model", "");
}

/// What is exported after a start is what the checkpoint held.
TEST_F(TensorParallelRun, StateOfOneLayoutLoadsUnderAnother) {
  ASSERT_EQ(train(kTp2Dp2, 0, "run"), 0) << output();
  const std::string want = weights("run");
  for (const Placement& layout : {kTp4, kOne, kTp2, kColocated}) {
    forget_export("run");
    ASSERT_EQ(train(layout, 0, "run"), 0) << layout.name << ": " << output();
    EXPECT_TRUE(weights("run") == want) << layout.name;
  }
  for (const Placement& layout : {kTp4, kOne}) {
    const std::string name = "on-" + layout.name;
    copy_until("run", name, 3);
    ASSERT_EQ(train(layout, 0, name), 0) << output();
    EXPECT_TRUE(rollouts(name, 4) == rollouts("run", 4))
        << layout.name << ": the weights after step 3 are others";
    expect_no_difference(name);
  }
}

TEST_F(TensorParallelRun, SupervisedRunsAndValidation) {
  const std::string more = "algorithm.name=sft algorithm.kl_coef=0 run.dtype=bf16 train.updates_per_step=1 ";
  ASSERT_EQ(train(kOne, 0, "one", more), 0) << output();
  ASSERT_EQ(train(kTp4, 0, "tp4", more), 0) << output();
  // The loss of the first step is that of the first weights.
  EXPECT_EQ(program_.metrics("tp4")[0].at("train/loss"), program_.metrics("one")[0].at("train/loss"));
  const std::string validated =
      "validation.every=2 'validation.data=[\"data.jsonl\"]' validation.max_prompts=4";
  ASSERT_EQ(train(kTp2, 0, "validated", validated), 0) << output();
  ASSERT_EQ(train(kTp2, 0, "plain"), 0) << output();
  EXPECT_TRUE(weights("validated") == weights("plain"));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
