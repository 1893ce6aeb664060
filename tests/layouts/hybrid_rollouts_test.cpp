// GRPO of a model with gated delta nets whose ranks share its heads where they generate, and runs that are
// stopped with responses that are not finished and weights of steps before.

#include "tests/e2e/hybrid_run.h"
#include "tests/support/background.h"
#include "tests/support/run_list.h"
#include "tests/support/same_run.h"

namespace temper {
namespace {

/// Among four ranks that share heads two have the same key head.
TEST_F(HybridRun, RanksThatShareHeadsGenerateWhatOneDoes) {
  const std::vector<std::pair<const char*, const char*>> layouts{
      {"tp4", "roles.trainer.tp=4 validation.data=data.jsonl validation.every=2 validation.max_prompts=4"},
      {"tp2", "roles.rollout.tp=2"},
      {"tp4-pp2", "roles.rollout.tp=4 roles.trainer.pp=2"},
      {"tp4-cp2", "roles.rollout.tp=4 roles.trainer.cp=2"},
      {"tp2pp2-tp2cp2", "roles.rollout.tp=2 roles.rollout.pp=2 roles.trainer.tp=2 roles.trainer.cp=2"},
      {"apart", "roles.rollout.ranks='\"0-1\"' roles.rollout.tp=2 roles.trainer.ranks='\"2-3\"'"},
  };
  std::vector<RanksRun> runs{{1, "train run.toml run.name=one"}};
  for (const auto& [name, keys] : layouts)
    runs.push_back({4, fmt::format("train run.toml run.name={} {}", name, keys)});
  ASSERT_EQ(run_each(runs), 0) << output();
  for (const auto& [name, keys] : layouts) {
    expect_one_numerics(name);
    EXPECT_EQ(steps_done(name), 3) << name;
    EXPECT_TRUE(rollouts(name, 1) == rollouts("one", 1)) << name;
  }
}

class StoppedHybridRun : public HybridRun {
 protected:
  static constexpr int kSteps = 8;
  static constexpr const char* kPartial =
      "run.steps=8 checkpoint.every=1 checkpoint.keep=20 checkpoint.export_hf_every=8 run.max_policy_lag=1 "
      "rollout.tokens_per_step=30";
  static std::string arguments(const std::string& name, const std::string& layout) {
    return fmt::format("train run.toml run.name={} {} {}", name, kPartial, layout);
  }
  /// Sends the signal to all ranks when the run has done a step more, and waits for its end.
  int stop(const std::string& name, int ranks, const std::string& layout, int signal) const {
    Background job(program_, program_.mpirun(ranks, arguments(name, layout)));
    const int64_t before = steps_done(name);
    EXPECT_TRUE(job.until([&] { return steps_done(name) > before; })) << output();
    for (const auto& [rank, process] : job.ranks()) ::kill(process, signal);
    return job.wait();
  }
};

TEST_F(StoppedHybridRun, GoesOnAfterEveryStep) {
  constexpr const char* kLayout =
      "roles.rollout.ranks='\"0-1\"' roles.rollout.tp=2 roles.trainer.ranks='\"2-3\"' roles.trainer.pp=2";
  ASSERT_EQ(run_each({{4, arguments("whole", kLayout)}, {4, arguments("again", kLayout)}}), 0) << output();
  EXPECT_EQ(run_difference(program_, "again", "whole"), "");
  std::vector<RanksRun> rest;
  const auto after = [](int step) { return fmt::format("after-{}", step); };
  for (int step = 1; step < kSteps; ++step) {
    copy_until("whole", after(step), step, kSteps);
    rest.push_back({4, arguments(after(step), kLayout)});
  }
  ASSERT_EQ(run_each(rest), 0) << output();
  for (int step = 1; step < kSteps; ++step)
    EXPECT_EQ(run_difference(program_, after(step), "whole"), "") << after(step);
}

/// With room for all sequences; and without, where a step that was cut counts fewer rows that are made again
/// (rollout/rows_recomputed), and nothing else differs.
TEST_F(StoppedHybridRun, GoesOnAfterSignalsInItsSteps) {
  const std::string kRoom = "rollout.max_running_sequences=32 rollout.kv_memory=1000000 ";
  for (const auto& [ranks, layout] :
       {std::pair{2, std::string("roles.trainer.tp=2")},
        {2, kRoom + "roles.trainer.tp=2"},
        {2, kRoom + "roles.rollout.ranks='\"0\"' roles.trainer.ranks='\"1\"'"}}) {
    for (const char* run : {"whole", "stopped"})
      std::filesystem::remove_all(program_.path(std::string("runs/") + run));
    ASSERT_EQ(run_each({{ranks, arguments("whole", layout)}}), 0) << output();
    int stops = 0;
    for (const int signal : {SIGTERM, SIGKILL, SIGTERM, SIGKILL}) {
      const int code = stop("stopped", ranks, layout, signal);
      stops += code != 0;
      EXPECT_TRUE(code == 0 || code == (signal == SIGTERM ? 75 : 128 + SIGKILL)) << code << output();
    }
    EXPECT_GT(stops, 1) << layout;
    ASSERT_EQ(program_.run_ranks(ranks, arguments("stopped", layout)), 0) << output();
    const bool has_room = layout.starts_with(kRoom);
    EXPECT_EQ((has_room ? run_difference : kept_difference)(program_, "stopped", "whole"), "") << layout;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
