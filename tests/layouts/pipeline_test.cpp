// Whole runs whose trainer ranks have layers of their own: they begin with the bits of one rank, make its
// gradients but for the order of sums, repeat and go on with their own, and leave state that any layout takes
// up.

#include "tests/e2e/layout_run.h"
#include "tests/support/run_list.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

const Placement kPp2 = layout("pp2", 2, 1, 2), kPp2Dp2 = layout("pp2dp2", 4, 1, 2),
                kTp2Pp2 = layout("tp2pp2", 4, 2, 2), kPp3 = layout("pp3", 3, 1, 3),
                kPp5 = layout("pp5", 5, 1, 5),
                kUneven = layout("uneven", 3, 1, 3, "roles.trainer.stage_layers=[1,3,1]"),
                kParts = layout("parts", 2, 1, 2, "roles.trainer.vpp=2"),
                kTp2Dp2Parts = layout("tp2dp2parts", 8, 2, 2, "roles.trainer.vpp=2 roles.trainer.zero=2");

using PipelineRun = LayoutRun;

TEST_F(PipelineRun, BeginsWithTheBitsOfOneRank) {
  expect_like_one_rank({kPp2, kPp2Dp2, kTp2Pp2}, kSmall);
  expect_like_one_rank({kPp3, kPp5, kUneven}, kSmall + kDeepModel + "run.dtype=bf16");
  expect_like_one_rank({kPp5, kParts}, kDeepModel);  // fewer micro-batches than stages
}

TEST_F(PipelineRun, DumpsTheGradientsOfOneRank) {
  for (const std::string& model : {std::string(), kDeepModel}) {
    const std::string more = kSmall + model + "run.dtype=fp64 run.steps=1 --dump-gradients ";
    const std::string kind = model.empty() ? "tied" : "deep";
    for (const Placement& l : {kOne, kPp2, kPp2Dp2, kTp2Pp2}) {
      ASSERT_EQ(train(l, 0, kind + l.name, more + "gradients-" + kind + l.name), 0) << l.name << output();
      const auto file = [&](const std::string& of) {
        return "gradients-" + kind + of + "/update-000001.safetensors";
      };
      EXPECT_LE(difference(file(l.name), file("one")), 1e-10) << l.name << ", " << kind;
    }
  }
}

TEST_F(PipelineRun, RepeatsAndGoesOn) { expect_repeats_and_goes_on(kTp2Pp2, kSmall); }

/// Stages in parts: the sums of gradients are in the same order, so that weights are those of whole stages.
TEST_F(PipelineRun, PartsOfStagesTrainAsWholeStages) {
  const std::string more = kSmall + kDeepModel + "optimizer.grad_clip=0 algorithm.tis_cap=2 ";
  for (const int lag : {0, 1}) {
    const std::string name = fmt::format("parts-{}", lag), whole = fmt::format("whole-{}", lag);
    ASSERT_EQ(train(kPp2, lag, whole, more), 0) << output();
    ASSERT_EQ(train(kParts, lag, name, more), 0) << output();
    EXPECT_TRUE(weights(name) == weights(whole));
    EXPECT_TRUE(rollouts(name, kSteps) == rollouts(whole, kSteps));
  }
  copy_until("parts-1", "resumed", 2);
  ASSERT_EQ(train(kParts, 1, "resumed", more), 0) << output();
  expect_same_run("resumed", "parts-1");
  std::filesystem::remove_all(program_.path("runs/parts-0/export"));
  ASSERT_EQ(train(kTp2Pp2, 0, "parts-0", more), 0) << output();
  EXPECT_TRUE(weights("parts-0") == weights("whole-0")) << "of its checkpoint, in another layout";
  ASSERT_EQ(train(kTp2Dp2Parts, 0, "parts-8", more), 0) << output();
  EXPECT_TRUE(rollouts("parts-8", 1) == rollouts("whole-0", 1));
}

/// Whatever generates: on the stages' ranks, shared in another way, or on others; ahead of the trainer, too.
TEST_F(PipelineRun, TheOtherRolesMayBeAnywhere) {
  const std::string every = kSmall + "checkpoint.export_hf_every=1";
  const std::vector<Placement> layouts = {
      layout("home", 4, 1, 2, "roles.rollout.tp=1"),
      layout("cut", 4, 1, 2, "roles.rollout.tp=4 roles.reference.tp=2"),
      layout("apart", 6, 1, 2,
             R"(roles.rollout.ranks='"0-1"' roles.rollout.tp=2 roles.reference.ranks='"1"' )"
             R"(roles.trainer.ranks='"2-5"')")};
  for (const int lag : {0, 1}) {
    for (const Placement& l : layouts) {
      const std::string name = fmt::format("{}-{}", l.name, lag);
      ASSERT_EQ(train(l, lag, name, every), 0) << l.name << ": " << output();
      expect_same_run(name, fmt::format("home-{}", lag));
    }
  }
  expect_score_agrees(program_, "apart-1", kSteps, "model", "");
}

TEST_F(PipelineRun, StateOfOneLayoutLoadsUnderAnother) {
  ASSERT_EQ(train(kTp2Pp2, 0, "run", kSmall), 0) << output();
  const std::string want = weights("run");
  for (const Placement& l : {kPp2, kOne, kPp2Dp2, kColocated}) {
    std::filesystem::remove_all(program_.path("runs/run/export"));
    ASSERT_EQ(train(l, 0, "run", kSmall), 0) << l.name << ": " << output();
    EXPECT_TRUE(weights("run") == want) << l.name;
  }
  for (const Placement& l : {kOne, kPp2}) {
    const std::string name = "on-" + l.name;
    copy_until("run", name, 3);
    ASSERT_EQ(train(l, 0, name, kSmall), 0) << output();
    EXPECT_TRUE(rollouts(name, 4) == rollouts("run", 4)) << l.name << ": other weights after step 3";
  }
}

/// Several updates a step with older samples: log-probs of now come from a pass over the stages.
TEST_F(PipelineRun, OldLogProbsAndReplays) {
  const std::string more = kSmall + "algorithm.tis_cap=2 ";
  ASSERT_EQ(train(kOne, 2, "one", more), 0) << output();
  ASSERT_EQ(train(kPp2, 2, "pp2", more), 0) << output();
  EXPECT_TRUE(rollouts("pp2", 1) == rollouts("one", 1));
  const std::vector<Json> got = program_.metrics("pp2"), want = program_.metrics("one");
  EXPECT_NEAR(got[2].at("actor/loss").get<double>(), want[2].at("actor/loss").get<double>(), 1e-4);
  const std::string replay = " --replay runs/one/rollouts/step-000001.jsonl";
  ASSERT_EQ(train(kPp2, 0, "replayed", kSmall + replay), 0) << output();
  EXPECT_NEAR(program_.metrics("replayed")[0].at("actor/grad_norm").get<double>(),
              want[0].at("actor/grad_norm").get<double>(), 1e-5);
}

TEST_F(PipelineRun, SupervisedRuns) {
  const std::string more = kSmall + "algorithm.name=sft algorithm.kl_coef=0 train.updates_per_step=1 ";
  ASSERT_EQ(train(kOne, 0, "one", more), 0) << output();
  ASSERT_EQ(train(kTp2Pp2, 0, "tp2pp2", more), 0) << output();
  EXPECT_NEAR(program_.metrics("tp2pp2")[0].at("train/loss").get<double>(),
              program_.metrics("one")[0].at("train/loss").get<double>(), 1e-6);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
