// A role that is added by a file and a row, in whole runs on one rank.

#include "tests/run/roles/toy_run.h"

namespace temper {
namespace {

TEST_F(ToyRun, AnnotatesAndSurvivesStops) { expect_survives_stops({}); }

TEST_F(ToyRun, AnnotatesStepsAheadAndSurvivesStops) { expect_survives_stops({"run.max_policy_lag=1"}); }

TEST_F(ToyRun, WithoutItsRowTheRunIsAsEver) {
  rows_.pop_back();
  EXPECT_EQ(train("bare", false, {}), 0);
  for (const Json& sample : rollouts("bare", 1)) EXPECT_FALSE(sample.at("reward_parts").contains("toy"));
}

TEST_F(ToyRun, TheFirstStepOfAStartTellsHowFastWeightsWereLoaded) {
  const char* key = "perf/load_weights_gb_per_s";
  EXPECT_EQ(train("loads", false, {"run.steps=2"}), 0);
  const std::vector<Json> metrics = lines("loads/metrics.jsonl");
  EXPECT_GT(metrics.at(0).value(key, 0.0), 0);
  EXPECT_FALSE(metrics.at(1).contains(key));
  EXPECT_EQ(train("draws", false, {"run.steps=1", "model.init=random"}), 0);
  EXPECT_FALSE(lines("draws/metrics.jsonl").at(0).contains(key));
}

/// A checkpoint without its state is no start for it.
TEST_F(ToyRun, ItsStateMustBeThere) {
  rows_.pop_back();
  EXPECT_EQ(train("bare", true, {}), static_cast<int>(Exit::retry));
  rows_.push_back({"toy", Duty::annotates, toy_ranks, make_toy_role});
  expect_error(Exit::data, {"roles/toy/mood", "missing"}, "checkpoint without the toy",
               [&] { train("bare", false, {}); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 1); }
