// A role that is added by a file and a row, in whole runs on one rank.

#include "tests/run/toy_run.h"

namespace temper {
namespace {

TEST_F(ToyRun, AnnotatesAndSurvivesStops) { expect_survives_stops({}); }

TEST_F(ToyRun, AnnotatesStepsAheadAndSurvivesStops) { expect_survives_stops({"run.max_policy_lag=1"}); }

TEST_F(ToyRun, WithoutItsRowTheRunIsAsEver) {
  rows_.pop_back();
  EXPECT_EQ(train("bare", false, {}), 0);
  for (const Json& sample : rollouts("bare", 1)) EXPECT_FALSE(sample.at("reward_parts").contains("toy"));
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
