// Whole runs whose rollout and reference go through stages of the model, as the trainer's or cut elsewhere:
// at lag 0 each is the run of the same trainer with whole models, with a lag tokens have the log-probs of
// their version, and what is validated does not depend on the layout.

#include "tests/e2e/layout_run.h"
#include "tests/support/run_list.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

class RolloutStages : public LayoutRun {
 protected:
  void expect_like_first(const std::vector<Placement>& layouts, int lag, const std::string& more, int steps) {
    std::vector<Run> runs;
    for (const Placement& l : layouts) runs.push_back({l, lag, fmt::format("{}-{}", l.name, lag), more});
    ASSERT_EQ(train_each(runs), 0) << output();
    for (const Run& run : runs) expect_same_run(run.name, runs.front().name, steps);
  }
};

std::string on(const char* role, const std::string& ranks, int tp, int pp) {
  return fmt::format("roles.{0}.ranks='\"{1}\"' roles.{0}.tp={2} roles.{0}.pp={3} ", role, ranks, tp, pp);
}

/// In the trainer's buffers, in others on the same ranks, on some of them and others, and apart.
TEST_F(RolloutStages, AreTheSameRun) {
  const std::vector<Placement> layouts = {
      layout("shared", 4, 1, 2), layout("tp2pp2", 4, 1, 2, "roles.rollout.tp=2 roles.reference.tp=2"),
      layout("shifted", 6, 1, 2,
             on("rollout", "2-5", 1, 4) + on("reference", "4-5", 1, 2) + on("trainer", "0-3", 1, 2))};
  expect_like_first(layouts, 0, kSmall + kDeepModel + "run.steps=3", 3);
}

/// A trainer with a whole model beside a rollout in stages of a tied one, in bf16; responses over several
/// steps. The older weights of a checkpoint come from the first ranks of each stage.
TEST_F(RolloutStages, WithALagAndResponsesOverSeveralSteps) {
  const std::string more =
      kSmall + "run.dtype=bf16 rollout.tokens_per_step=3 algorithm.tis_cap=2 checkpoint.export_hf_every=1";
  const std::vector<Placement> layouts = {
      {"whole", 3, on("rollout", "0-1", 1, 1) + on("reference", "0", 1, 1) + on("trainer", "2", 1, 1)},
      {"staged", 5, on("rollout", "0-3", 2, 2) + on("reference", "0-3", 1, 2) + on("trainer", "4", 1, 1)}};
  expect_like_first(layouts, 1, more, kSteps);
  EXPECT_GT(expect_score_agrees(program_, "staged-1", kSteps, "model", "--dtype bf16"), 0);
  copy_until("staged-1", "after-2", 2);
  ASSERT_EQ(train(layouts.front(), 1, "after-2", more), 0) << output();
  expect_same_run("after-2", "staged-1");
}

/// Stages of a reference in several parts, like those of the trainer or not: the log-probs are the same.
TEST_F(RolloutStages, OfAReferenceInParts) {
  const Placement whole{"whole", 2, "roles.trainer.pp=2 roles.rollout.pp=1"},
      inherited{"inherited", 2, "roles.trainer.pp=2 roles.trainer.vpp=2 roles.rollout.pp=1"},
      own{"own", 2, "roles.trainer.pp=2 roles.rollout.pp=1 roles.reference.vpp=2"},
      apart{"apart", 4,
            R"(roles.trainer.ranks='"0-1"' roles.trainer.pp=2 roles.rollout.ranks='"0"' )"
            R"(roles.reference.ranks='"2-3"' roles.reference.vpp=2)"};
  std::vector<Run> runs;
  for (const Placement& l : {whole, inherited, own, apart}) runs.push_back({l, 0, l.name, kDeepModel});
  ASSERT_EQ(train_each(runs), 0) << output();
  for (const Placement& l : {inherited, own, apart}) {
    EXPECT_TRUE(rollouts(l.name, 1) == rollouts("whole", 1)) << l.name;
    EXPECT_EQ(program_.metrics(l.name)[0].at("actor/kl_loss"),
              program_.metrics("whole")[0].at("actor/kl_loss"))
        << l.name;
  }
  expect_same_run("own", "whole");
  expect_same_run("apart", "whole");
  EXPECT_EQ(program_.run("check run.toml --ranks 2 roles.trainer.pp=1 roles.reference.vpp=2"), 64);
  EXPECT_TRUE(says("need roles.reference.pp > 1") && says("roles.reference.vpp = 1")) << output();
}

/// Ranks with shards of the reference's weights score a step together, with the bits of whole ones: those of
/// the trainer, by whose keys or by their own, others, and stages of several parts.
TEST_F(RolloutStages, OfAReferenceInShards) {
  const std::string zero = " roles.reference.zero=3 ";
  const Placement home{"home", 3, ""}, own{"own", 3, zero},
      apart{"apart", 6,
            on("trainer", "0-2", 1, 1) + on("rollout", "1-2", 1, 1) + on("reference", "2-5", 1, 2) + zero +
                "roles.reference.vpp=2 "};
  const std::string more = kSmall + kDeepModel;
  std::vector<Run> runs, rest;
  for (const int lag : {0, 2})
    for (const Placement& l : {home, own, apart})
      runs.push_back({l, lag, fmt::format("{}-{}", l.name, lag), more});
  const Placement inherits = layout("inherits", 4, 1, 2, "roles.trainer.zero=3 ");
  const std::vector<Run> inherited = {{inherits, 1, "shards", more},
                                      {inherits, 1, "whole", more + "roles.reference.zero=1"}};
  runs.insert(runs.end(), inherited.begin(), inherited.end());
  ASSERT_EQ(train_each(runs), 0) << output();
  for (const int lag : {0, 2}) {
    rest.push_back({apart, lag, fmt::format("on-{}", lag), more});
    copy_until(fmt::format("own-{}", lag), rest.back().name, 2);
  }
  ASSERT_EQ(train_each(rest), 0) << output();
  for (const int lag : {0, 2})
    for (const char* like : {"own", "apart", "on"})
      expect_same_run(fmt::format("{}-{}", like, lag), fmt::format("home-{}", lag));
  expect_same_run("shards", "whole");
  EXPECT_EQ(program_.run("check run.toml --ranks 2 run.device=cuda roles.reference.offload=true" + zero), 64);
  EXPECT_TRUE(says("roles.reference.offload = \"auto\" or false")) << output();
}

/// With weights that stay as they are every layout validates the same.
TEST_F(RolloutStages, ValidateWithTheTrainersStages) {
  const std::string more = kSmall + kDeepModel +
                           "run.steps=1 optimizer.lr=0 validation.every=1 validation.samples_per_prompt=2 "
                           "'validation.data=[\"data.jsonl\"]' validation.max_prompts=7 ";
  const std::string file = "runs/{}/validation/step-000001.jsonl";
  const std::vector<Placement> layouts = {kOne,
                                          layout("pp2", 2, 1, 2, "roles.rollout.pp=1"),
                                          layout("cp2pp2", 4, 1, 2, "roles.trainer.cp=2"),
                                          {"vpp2", 2, "roles.trainer.pp=2 roles.trainer.vpp=2"}};
  std::vector<Run> runs;
  for (const Placement& l : layouts) runs.push_back({l, 0, l.name, more});
  ASSERT_EQ(train_each(runs), 0) << output();
  const std::string want = program_.read(fmt::format(fmt::runtime(file), "one"));
  for (const Placement& l : layouts) {
    EXPECT_TRUE(program_.read(fmt::format(fmt::runtime(file), l.name)) == want) << l.name;
    EXPECT_TRUE(rollouts(l.name, 1) == rollouts("one", 1)) << l.name << ": log-probs of the reference, too";
  }
  const std::string eval = "eval run.toml --out {} " + more + "roles.trainer.pp={}";
  ASSERT_EQ(program_.run(fmt::format(fmt::runtime(eval), "one.jsonl", 1)), 0) << output();
  ASSERT_EQ(program_.run_ranks(2, fmt::format(fmt::runtime(eval), "two.jsonl", 2)), 0) << output();
  EXPECT_TRUE(program_.read("two.jsonl") == program_.read("one.jsonl"));
  EXPECT_EQ(program_.read("two.jsonl.settings.json"), program_.read("one.jsonl.settings.json"));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
