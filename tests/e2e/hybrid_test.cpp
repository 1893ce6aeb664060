// Runs of hybrid models: rollout and trainer have one numerics in every layout, with states that are shared,
// preempted and begun again, and with weights of steps before.

#include "tests/e2e/hybrid_run.h"
#include "tests/support/run_list.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

TEST_F(HybridRun, RolloutAndTrainerHaveOneNumerics) {
  const std::vector<std::pair<const char*, const char*>> layouts{
      {"dp2", ""},
      {"pp2", "roles.trainer.pp=2"},
      {"vpp2", "roles.trainer.pp=2 roles.trainer.vpp=2"},
      {"zero3", "roles.trainer.zero=3"},
      {"apart", "roles.trainer.ranks='\"0\"' roles.rollout.ranks='\"1\"'"},
      {"tp2",
       "roles.trainer.tp=2 roles.rollout.tp=2 validation.data=data.jsonl validation.every=2 "
       "validation.max_prompts=4"},
      {"tp2cp2", "roles.trainer.cp=2 roles.rollout.tp=2"},
  };
  std::vector<RanksRun> runs;
  for (const auto& [name, keys] : layouts)
    runs.push_back({2, fmt::format("train run.toml run.name={} {}", name, keys)});
  ASSERT_EQ(run_each(runs), 0) << output();
  double preempted = 0;
  for (const auto& [name, keys] : layouts) {
    expect_one_numerics(name);
    for (const Json& line : program_.metrics(name)) preempted += line.value("rollout/preemptions", 0.0);
    EXPECT_EQ(rollouts(name, 1), rollouts("dp2", 1)) << name;
  }
  EXPECT_GT(preempted, 0);
  expect_score_agrees(program_, "vpp2", 3, "model", "");
}

/// Responses take several steps and go on with other weights: their states are made again.
TEST_F(HybridRun, ALagAndPartsOfResponses) {
  ASSERT_EQ(run_each({{2,
                       "train run.toml run.max_policy_lag=1 rollout.tokens_per_step=30 run.steps=4 "
                       "roles.trainer.ranks='\"0\"' roles.rollout.ranks='\"1\"'"}}),
            0)
      << output();
  EXPECT_GT(expect_score_agrees(program_, "run", 4, "model", ""), 0);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
