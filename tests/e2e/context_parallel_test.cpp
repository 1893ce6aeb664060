// Whole runs whose trainer ranks share the tokens of micro-batches: they have the log-probs of one rank, make
// its gradients but for the order of sums, repeat and go on with their own, and leave state that any layout
// takes up. Sequences are longer than one rank's budget.

#include "tests/e2e/layout_run.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

/// `budget`: tokens of a rank; of the longest sequence there are 38.
Placement shared(const std::string& name, int ranks, int cp, int budget, const std::string& more = "") {
  return {name, ranks,
          fmt::format("roles.trainer.cp={} train.max_tokens_per_microbatch={} {}", cp, budget, more)};
}

const std::string kPrompts = "rollout.max_prompt_tokens=30 ";
const Placement kCp2 = shared("cp2", 2, 2, 19), kCp4 = shared("cp4", 4, 4, 10),
                kCp2Dp2 = shared("cp2dp2", 4, 2, 30),
                kTp2Cp2 = shared("tp2cp2", 4, 2, 19, "roles.trainer.tp=2"),
                kCp2Pp2 = shared("cp2pp2", 4, 2, 19, "roles.trainer.pp=2"),
                kSharded = shared("sharded", 4, 2, 19, "roles.trainer.zero=2");

using ContextParallelRun = LayoutRun;

/// Heads of keys fewer than ranks (cp4), packs that do not divide by the ranks, one rank's tokens in the
/// middle of a prompt.
TEST_F(ContextParallelRun, HasTheBitsOfOneRank) {
  expect_like_one_rank({kCp2, kCp4, kCp2Dp2, kTp2Cp2, kCp2Pp2, kSharded}, kPrompts);
  // Gradients of keys that ranks share are sums of bf16 parts.
  expect_like_one_rank({kCp2, kCp4}, kPrompts + kDeepModel + "run.dtype=bf16", 0.01);
}

TEST_F(ContextParallelRun, DumpsTheGradientsOfOneRank) {
  for (const std::string& model : {std::string(), kDeepModel}) {
    const std::string kind = model.empty() ? "tied" : "deep";
    for (const Placement& l : {kOne, kCp2, kCp4, kCp2Dp2, kTp2Cp2, kCp2Pp2, kSharded}) {
      const std::string more = kPrompts + model + "run.dtype=fp64 run.steps=1 --dump-gradients gradients-";
      ASSERT_EQ(train(l, 0, kind + l.name, more + kind + l.name), 0) << l.name << output();
      const auto file = [&](const std::string& of) {
        return fmt::format("gradients-{}{}/update-000001.safetensors", kind, of);
      };
      EXPECT_LE(difference(file(l.name), file("one")), 1e-10) << l.name << ", " << kind;
    }
  }
}

TEST_F(ContextParallelRun, RepeatsAndGoesOnAfterEveryStep) {
  ASSERT_EQ(train(kTp2Cp2, 1, "whole", kPrompts), 0) << output();
  ASSERT_EQ(train(kTp2Cp2, 1, "again", kPrompts), 0) << output();
  expect_same_run("again", "whole");
  for (int step = 1; step < kSteps; step += 2) {
    const std::string name = fmt::format("after-{}", step);
    copy_until("whole", name, step);
    ASSERT_EQ(train(kTp2Cp2, 1, name, kPrompts), 0) << output();
    expect_same_run(name, "whole");
  }
}

TEST_F(ContextParallelRun, StateOfOneLayoutLoadsUnderAnother) {
  ASSERT_EQ(train(kCp2Dp2, 0, "run", kPrompts), 0) << output();
  const std::string want = weights("run");
  for (const Placement& l : {kTp2Cp2, kOne, layout("dp2", 2, 1, 1), kCp4}) {
    std::filesystem::remove_all(program_.path("runs/run/export"));
    ASSERT_EQ(train(l, 0, "run", kPrompts), 0) << l.name << ": " << output();
    EXPECT_TRUE(weights("run") == want) << l.name;
  }
}

/// Log-probs of older weights, and those of a rollout elsewhere, ahead of the trainer.
TEST_F(ContextParallelRun, OtherRolesMayBeAnywhere) {
  const std::string every = kPrompts + "checkpoint.export_hf_every=1 ";
  const Placement home = shared("home", 2, 2, 19),
                  apart = shared("apart", 5, 2, 19,
                                 R"(roles.rollout.ranks='"0-2"' roles.reference.ranks='"2"' )"
                                 R"(roles.reference.cp=1 roles.trainer.ranks='"3-4"')"),
                  scored = shared("scored", 4, 2, 19,
                                  R"(roles.rollout.ranks='"0"' roles.reference.ranks='"0-1"' )"
                                  R"(roles.reference.tp=1 roles.trainer.ranks='"2-3"')");
  for (const int lag : {0, 1}) {
    for (const Placement& l : {home, apart, scored})
      ASSERT_EQ(train(l, lag, fmt::format("{}-{}", l.name, lag), every), 0) << l.name << ": " << output();
    expect_same_run(fmt::format("apart-{}", lag), fmt::format("home-{}", lag));
    expect_same_run(fmt::format("scored-{}", lag), fmt::format("home-{}", lag));
  }
  expect_score_agrees(program_, "apart-1", kSteps, "model", "");
  ASSERT_EQ(train(home, 2, "older", kPrompts + "algorithm.tis_cap=2"), 0) << output();
  EXPECT_TRUE(rollouts("older", 1) == rollouts("home-0", 1));
}

TEST_F(ContextParallelRun, SupervisedRuns) {
  const std::string more = kPrompts + "algorithm.name=sft algorithm.kl_coef=0 train.updates_per_step=1 ";
  ASSERT_EQ(train(kOne, 0, "one", more), 0) << output();
  ASSERT_EQ(train(kCp4, 0, "cp4", more), 0) << output();
  EXPECT_NEAR(program_.metrics("cp4")[0].at("train/loss").get<double>(),
              program_.metrics("one")[0].at("train/loss").get<double>(), 1e-6);
}

/// Fewer tokens than ranks in a micro-batch.
TEST_F(ContextParallelRun, PacksOfFewTokens) {
  program_.write("short.jsonl", R"({"prompt": "a", "response": ""})"
                                "\n"
                                R"({"prompt": "b", "response": "c"})"
                                "\n");
  const std::string more =
      "algorithm.name=sft algorithm.kl_coef=0 data.train=short.jsonl rollout.prompts_per_step=2 "
      "train.samples_per_update=1 rollout.samples_per_prompt=1 run.dtype=fp64 run.steps=3 "
      "checkpoint.export_hf_every=3 ";
  ASSERT_EQ(train(kOne, 0, "one", more), 0) << output();
  ASSERT_EQ(train(shared("cp4", 4, 4, 64), 0, "cp4", more), 0) << output();
  const std::vector<Json> got = program_.metrics("cp4"), want = program_.metrics("one");
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i].at("train/loss").get<double>(), want[i].at("train/loss").get<double>(), 1e-9) << i;
}

TEST_F(ContextParallelRun, IllegalNumbersAreRefusedWithLegalOnes) {
  const auto refused = [&](int ranks, const std::string& keys) {
    EXPECT_EQ(program_.run(fmt::format("check run.toml --ranks {} {}", ranks, keys)), 64) << keys;
  };
  refused(6, "roles.trainer.cp=3");
  EXPECT_TRUE(says("4 attention heads do not divide by 3") && says("roles.trainer.cp = 1 or 2")) << output();
  refused(8, "roles.trainer.tp=2 roles.trainer.cp=4");
  EXPECT_TRUE(says("2 attention heads of a tp rank (4 / 2) do not divide by 4")) << output();
  refused(3, R"(roles.trainer.cp=2 roles.trainer.ranks='"0-1"' roles.reference.ranks='"2"')");
  EXPECT_TRUE(says("roles.reference.cp") &&
              says("1 reference ranks with tp = 1 do not divide into groups of 2 (as roles.trainer.cp)"))
      << output();
  refused(2, "roles.trainer.cp=2 rollout.max_prompt_tokens=30 train.max_tokens_per_microbatch=18");
  EXPECT_TRUE(says("38 tokens") && says("the budget is 18 on each of 2 ranks") && says("19")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
