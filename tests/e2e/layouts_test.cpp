// Whole runs in which roles share the model in different ways: at lag 0 each is the run of the same trainer
// with its roles at home, whatever generates; with a lag every token's log-prob is what `score` says of it.

#include "tests/e2e/placed_run.h"
#include "tests/support/run_list.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

std::string roles(const std::string& rollout, const std::string& reference, const std::string& trainer) {
  const auto role = [](const char* name, const std::string& text) {
    const size_t tp = text.find(" tp");
    return fmt::format("roles.{0}.ranks='\"{1}\"' roles.{0}.tp={2} ", name, text.substr(0, tp),
                       text.substr(tp + 3));
  };
  return role("rollout", rollout) + role("reference", reference) + role("trainer", trainer);
}

/// The first one, and what must be like it.
struct Alike {
  std::vector<Placement> layouts;
  int lag;
};

class LayoutRun : public PlacedRun {
 protected:
  void expect_equal_runs(const std::vector<Alike>& sets, const std::string& more = "") {
    const auto name = [](const Placement& l, int lag) { return fmt::format("{}-{}", l.name, lag); };
    std::vector<Run> runs;
    for (const auto& [layouts, lag] : sets)
      for (const Placement& l : layouts) runs.push_back({l, lag, name(l, lag), more});
    ASSERT_EQ(train_each(runs), 0) << output();
    for (const auto& [layouts, lag] : sets)
      for (const Placement& l : layouts) {
        const bool same_weights = lag == 0 && more.find("tokens_per_step") == std::string::npos;
        for (const Json& line : program_.metrics(name(l, lag)))
          if (same_weights) {
            EXPECT_EQ(line.at("actor/rollout_logprob_diff_max").get<double>(), 0.0) << name(l, lag);
          }
        expect_same_run(name(layouts.front(), lag), name(l, lag));
      }
  }
};

/// The reference is cut, too; it may lie anywhere.
TEST_F(LayoutRun, TrainersOfTp2AndDp2WithAnyRollout) {
  const std::vector<Placement> layouts = {
      {"home", 4, "roles.trainer.tp=2"},
      {"whole", 4, roles("0-3 tp1", "0-3 tp1", "0-3 tp2")},
      {"cut", 4, roles("0-3 tp4", "0-3 tp4", "0-3 tp2")},
      {"apart", 6, roles("0-1 tp2", "0-1 tp1", "2-5 tp2")},
      {"half", 6, roles("2-5 tp4", "0-1 tp2", "0-3 tp2")},
      {"shifted", 5, roles("1-4 tp2", "0 tp1", "0-3 tp2")},
  };
  expect_equal_runs({{layouts, 0}});
}

TEST_F(LayoutRun, TrainersOfDp4WithARolloutOfTp4AndTheReverse) {
  expect_equal_runs(
      {{{{"dp4", 4, ""}, {"dp4-tp4", 4, "roles.rollout.tp=4 roles.reference.tp=2"}}, 0},
       {{{"tp4", 4, "roles.trainer.tp=4"}, {"tp4-dp4", 4, roles("0-3 tp1", "0-3 tp1", "0-3 tp4")}}, 0}});
}

TEST_F(LayoutRun, TrainersOfPp2AndDp2WithARolloutOfTp4AndTheReverse) {
  const std::string stages = "roles.trainer.pp=2 ", shares = "roles.trainer.tp=4 ",
                    in_stages = "roles.rollout.tp=1 roles.rollout.pp=2 roles.reference.tp=2 ";
  std::vector<Alike> sets;
  for (const int lag : {0, 1}) {
    sets.push_back({{{"pp2dp2", 4, stages}, {"pp2dp2-tp4", 4, stages + "roles.rollout.tp=4"}}, lag});
    sets.push_back({{{"tp4", 4, shares}, {"tp4-pp2dp2", 4, shares + in_stages}}, lag});
  }
  expect_equal_runs(sets);
}

/// A rollout that runs ahead, cut or whole; stopped after each step, when older weights are in the
/// checkpoint.
TEST_F(LayoutRun, WithALagAndAnyLayoutTheTokensAreThoseOfTheirVersion) {
  const std::vector<Placement> layouts = {{"whole", 3, roles("0 tp1", "0 tp1", "1-2 tp2")},
                                          {"cut", 6, roles("0-3 tp4", "0-3 tp2", "4-5 tp2")}};
  expect_equal_runs({{layouts, 1}}, "checkpoint.export_hf_every=1");
  expect_score_agrees(program_, "cut-1", kSteps, "model", "");
  for (const int step : {1, 3}) {
    const std::string name = fmt::format("after-{}", step);
    copy_until("cut-1", name, step);
    ASSERT_EQ(train(layouts[step == 1], 1, name, "checkpoint.export_hf_every=1"), 0) << output();
    expect_same_run(name, "cut-1");
  }
}

/// Every way to draw, over a vocabulary that ranks share.
TEST_F(LayoutRun, FiltersAndPenaltiesDrawTheSameTokens) {
  const std::string drawn =
      "rollout.top_k=40 rollout.top_p=0.9 rollout.min_p=0.001 rollout.temperature=0.8 "
      "rollout.repetition_penalty=1.2 rollout.presence_penalty=0.1 rollout.frequency_penalty=0.2 "
      "rollout.min_new_tokens=3 rollout.stop='[\"e\"]' ";
  expect_equal_runs(
      {{{{"one", 2, "roles.trainer.tp=2 roles.rollout.tp=1"}, {"tp2", 2, "roles.trainer.tp=2"}}, 0}},
      drawn + "run.dtype=bf16");
}

/// Responses over several steps, prompts that are replaced, and a checkpoint in between.
TEST_F(LayoutRun, LongResponsesAndReplacedPromptsInTeams) {
  const std::string moving =
      "reward.functions='[{name=\"gsm8k\",method=\"flexible\",format_score=0.5}]' "
      "rollout.stop='[\"e\",\"a\"]' "
      "rollout.tokens_per_step=3 rollout.dynamic_sampling_rounds=2 ";
  const std::vector<Placement> layouts = {{"whole", 4, roles("0-3 tp1", "0-3 tp2", "0-3 tp2")},
                                          {"cut", 4, roles("0-3 tp2", "0-3 tp4", "0-3 tp2")}};
  expect_equal_runs({{layouts, 0}}, moving);
  copy_until("cut-0", "after-2", 2);
  ASSERT_EQ(train(layouts.front(), 0, "after-2", moving), 0) << output();
  expect_same_run("after-2", "cut-0");
}

TEST_F(LayoutRun, IllegalLayoutsOfARoleAreRefusedWithLegalOnes) {
  EXPECT_EQ(train({"three", 4, roles("0-2 tp2", "0-3 tp1", "0-3 tp2")}, 0, "three"), 64);
  EXPECT_TRUE(says("3 rollout ranks do not divide into groups of 2")) << output();
  EXPECT_TRUE(says("roles.rollout.tp = 1")) << output();
  EXPECT_EQ(
      train({"inherited", 5, "roles.trainer.tp=4 roles.trainer.ranks='\"1-4\"' roles.rollout.ranks='\"0\"'"},
            0, "inherited"),
      64);
  EXPECT_TRUE(says("1 rollout ranks do not divide into groups of 4 (as roles.trainer.tp)")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
