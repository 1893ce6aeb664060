// Whole runs whose trainer ranks share the tokens of micro-batches: they have the log-probs of one rank, make
// its gradients but for the order of sums, repeat and go on with their own, and leave state that any layout
// takes up. Sequences are longer than one rank's budget.

#include "tests/e2e/layout_run.h"
#include "tests/support/run_list.h"
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

TEST_F(ContextParallelRun, RepeatsAndGoesOn) { expect_repeats_and_goes_on(kTp2Cp2, kPrompts); }

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

/// A rollout of whole models on three ranks: those of the trainer and others.
TEST_F(ContextParallelRun, ATrainerOfTp2Cp2AndARolloutOfDp3) {
  const std::string every = kPrompts + "checkpoint.export_hf_every=1 ",
                    of_trainer = "roles.trainer.tp=2 roles.trainer.ranks='\"0-3\"' roles.rollout.tp=1 ";
  const Placement overlapping = shared("overlapping", 4, 2, 19, of_trainer + "roles.rollout.ranks='\"0-2\"'"),
                  partly = shared("partly", 6, 2, 19, of_trainer + "roles.rollout.ranks='\"3-5\"'"),
                  disjoint = shared("disjoint", 7, 2, 19, of_trainer + "roles.rollout.ranks='\"4-6\"'");
  for (const int lag : {0, 1}) {
    const std::string home = fmt::format("home-{}", lag);
    ASSERT_EQ(train(kTp2Cp2, lag, home, every), 0) << output();
    for (const Placement& l : {overlapping, partly, disjoint}) {
      const std::string name = fmt::format("{}-{}", l.name, lag);
      ASSERT_EQ(train(l, lag, name, every), 0) << l.name << ": " << output();
      expect_same_run(name, home);
    }
  }
  for (const Json& line : program_.metrics("disjoint-0"))
    EXPECT_EQ(line.at("actor/rollout_logprob_diff_max").get<double>(), 0.0);
  expect_score_agrees(program_, "disjoint-1", kSteps, "model", "");
}

TEST_F(ContextParallelRun, SupervisedRuns) {
  const std::string more = kPrompts + "algorithm.name=sft algorithm.kl_coef=0 train.updates_per_step=1 ";
  ASSERT_EQ(train(kOne, 0, "one", more), 0) << output();
  ASSERT_EQ(train(kCp4, 0, "cp4", more), 0) << output();
  EXPECT_NEAR(program_.metrics("cp4")[0].at("train/loss").get<double>(),
              program_.metrics("one")[0].at("train/loss").get<double>(), 1e-6);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
