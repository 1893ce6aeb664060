// Runs that are stopped while steps have been generated ahead of the trainer, and go on: metrics (but
// timing_s/ and perf/), rollouts and weights are those of the run that was never stopped. Through the program
// itself.

#include "tests/e2e/placed_run.h"
#include "tests/support/background.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

class ResumeAhead : public PlacedRun {
 protected:
  /// Starts the run and asks these ranks to stop after its first step; the number of steps that it did.
  int stop(const Placement& placement, int lag, const std::string& name, const std::vector<int>& victims,
           const std::string& more) const {
    Background job(program_, program_.mpirun(placement.ranks, arguments(placement, lag, name, more)));
    const std::string file = program_.path("runs/" + name + "/metrics.jsonl");
    EXPECT_TRUE(job.until([&] { return path_exists(file) && fs::file_size(file) > 0; })) << output();
    for (int rank : victims) ::kill(job.rank(rank), SIGTERM);
    EXPECT_EQ(job.wait(), 75) << name << ": " << output();
    return static_cast<int>(metrics_lines(name));
  }
  size_t metrics_lines(const std::string& name) const { return program_.metrics(name).size(); }

  const std::vector<Placement> placements_ = {kColocated, kDisjoint, kOverlapping};
};

/// Each time in the next placement; with the lag of 1 after every step.
TEST_F(ResumeAhead, GoesOnAfterEveryStepInAnyPlacement) {
  const auto whole = [](int lag) { return fmt::format("whole-{}", lag); };
  const auto from = [&](int lag, int step) { return fmt::format("{}-from-{}", whole(lag), step); };
  ASSERT_EQ(train_each({{kDisjoint, 0, whole(0)}, {kDisjoint, 1, whole(1)}, {kDisjoint, 2, whole(2)}}), 0)
      << output();
  std::vector<std::pair<int, int>> stops;  // lag, step
  std::vector<Run> rest;
  for (int lag : {0, 1, 2})
    for (int step = 1; step < kSteps; step += lag == 1 ? 1 : 2) {
      stops.emplace_back(lag, step);
      copy_until(whole(lag), from(lag, step), step);
      rest.push_back(
          {placements_[static_cast<size_t>(step + lag) % placements_.size()], lag, from(lag, step)});
    }
  ASSERT_EQ(train_each(rest), 0) << output();
  for (const auto& [lag, step] : stops) {
    EXPECT_TRUE(logged(from(lag, step), fmt::format("step-{0:06d}, step {0}", step))) << from(lag, step);
    expect_same_run(whole(lag), from(lag, step));
  }
}

TEST_F(ResumeAhead, AnotherNumberOfRanksGeneratesTheSameNextStep) {
  ASSERT_EQ(train(kColocated, 0, "whole"), 0) << output();
  const Placement wider{"wider", 4, R"(roles.rollout.ranks='"0-1"' roles.trainer.ranks='"1-3"')"};
  for (const Placement& other : {Placement{"alone", 1, ""}, wider}) {
    copy_until("whole", other.name, 2);
    ASSERT_EQ(train(other, 0, other.name), 0) << output();
    EXPECT_TRUE(rollouts(other.name, 3) == rollouts("whole", 3)) << other.name;
    EXPECT_EQ(metrics_lines(other.name), static_cast<size_t>(kSteps));
  }
}

/// Steps 3 and 4 were generated ahead; they stay as they are, also over a second stop.
TEST_F(ResumeAhead, WithAnotherLagGoesOnToTheEnd) {
  ASSERT_EQ(train(kDisjoint, 2, "two"), 0) << output();
  copy_until("two", "less", 2);
  ASSERT_EQ(train(kOverlapping, 0, "less"), 0) << output();
  for (int step : {3, 4}) EXPECT_TRUE(rollouts("less", step) == rollouts("two", step)) << step;
  EXPECT_EQ(program_.metrics("less").back().at("policy/lag_max").get<double>(), 0);
  copy_until("less", "again", 3);
  ASSERT_EQ(train(kDisjoint, 0, "again"), 0) << output();
  expect_same_run("less", "again");
  ASSERT_EQ(train(kColocated, 0, "zero"), 0) << output();
  copy_until("zero", "more", 2);
  ASSERT_EQ(train(kDisjoint, 2, "more"), 0) << output();
  EXPECT_EQ(program_.metrics("more").back().at("policy/lag_max").get<double>(), 2);
}

/// The checkpoint's steps ahead have no reference log-probs: the reference says them before they are trained.
TEST_F(ResumeAhead, WithAReferenceThatTheRunDidNotHave) {
  ASSERT_EQ(train(kColocated, 2, "without", "algorithm.kl_coef=0"), 0) << output();
  std::string first;
  std::vector<Run> rest;
  for (const auto& [placement, lag] :
       {std::pair(kColocated, 2), std::pair(kDisjoint, 2), std::pair(kOverlapping, 0)}) {
    copy_until("without", placement.name, 2);
    rest.push_back({placement, lag, placement.name});
  }
  ASSERT_EQ(train_each(rest), 0) << output();
  for (const auto& [placement, lag, name, more] : rest) {
    EXPECT_TRUE(logged(name, "changed since: algorithm.kl_coef 0.0 -> 0.1")) << name;
    for (int step : {3, 4})
      for (const Json& line : program_.json_lines(rollout_file(placement.name, step))) {
        EXPECT_EQ(line.at("ref_logprobs").size(), line.at("response_tokens").size()) << step;
        EXPECT_EQ(line.at("ref_logprobs") == line.at("logprobs"), step == 3)
            << "step 3 was sampled with the first weights, which are the reference's";
      }
    EXPECT_GT(program_.metrics(placement.name)[2].at("actor/kl_loss").get<double>(), 0);
    if (lag == 2) {
      if (first.empty()) first = placement.name;
      expect_same_run(first, placement.name);
    }
  }
}

/// The weights that the lag asks for are gone with the end of the run.
TEST_F(ResumeAhead, ALengthenedRunSaysWhatDiffers) {
  ASSERT_EQ(train(kColocated, 1, "whole", "run.steps=3"), 0) << output();
  ASSERT_EQ(train(kColocated, 1, "whole", "run.steps=5"), 0) << output();
  EXPECT_TRUE(says("steps 4 to 4 are generated with the weights after step 3") && says("after step 2"))
      << output();
  copy_until("whole", "again", 4);
  ASSERT_EQ(train(kColocated, 1, "again", "run.steps=5"), 0) << output();
  EXPECT_FALSE(says("are generated with the weights")) << output();
}

TEST_F(ResumeAhead, AReplayUsesTheVersionsOfTheFile) {
  ASSERT_EQ(train(kColocated, 2, "two"), 0) << output();
  ASSERT_EQ(train(kColocated, 0, "again", "--replay " + rollout_file("two", 5)), 0) << output();
  EXPECT_EQ(program_.metrics("again")[0].at("policy/off_policy_share").get<double>(), 1);
  EXPECT_EQ(program_.metrics("again")[0].at("policy/lag_max").get<double>(), 2);
  EXPECT_FALSE(says("tis_cap needs versions")) << output();
  std::string bare;
  for (Json line : program_.json_lines(rollout_file("two", 5))) {
    line.erase("policy_version");
    bare += dump_json_line(line) + "\n";
  }
  program_.write("bare.jsonl", bare);
  ASSERT_EQ(train(kColocated, 0, "bare", "--replay bare.jsonl"), 0) << output();
  EXPECT_TRUE(says("tis_cap needs versions") && says("bare.jsonl")) << output();
}

/// Asked to stop on a rank that only generates, on one that is only the reference, on all, on a trainer rank:
/// the steps ahead are finished and saved, and the run that goes on from there was never asked to stop.
TEST_F(ResumeAhead, ASignalToAnyRankSavesAndEnds) {
  const std::string steady = "optimizer.schedule=constant checkpoint.export_hf_every=1000 ";
  const std::vector<std::pair<std::vector<int>, int>> cases = {
      {{0}, 2}, {{1}, 2}, {{0, 1, 2, 3}, 2}, {{2}, 1}};
  std::vector<Run> rest;
  std::map<std::string, int> stopped;
  for (const auto& [victims, lag] : cases) {
    const std::string name = fmt::format("signal-{}-{}-{}", victims[0], victims.size(), lag);
    const int steps = stop(kDisjoint, lag, name, victims, steady + "run.steps=1000");
    ASSERT_LT(steps, 900) << "it was not stopped by the signal";
    stopped[name] = steps;
    const std::string last = steady + fmt::format("run.steps={}", steps + 4);
    rest.push_back({kOverlapping, lag, name, last});
    rest.push_back({kDisjoint, lag, "whole-" + name, last});
  }
  ASSERT_EQ(train_each(rest), 0) << output();
  for (const auto& [name, steps] : stopped) {
    EXPECT_EQ(metrics(name), metrics("whole-" + name)) << "stopped after step " << steps;
    EXPECT_TRUE(weights(name, steps + 4) == weights("whole-" + name, steps + 4)) << name;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
