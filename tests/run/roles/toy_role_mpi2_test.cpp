// A role that is added by a file and a row, in whole runs on two ranks: with all roles on both, and beside
// the trainer while another rank generates.

#include "tests/run/roles/toy_run.h"

namespace temper {
namespace {

TEST_F(ToyRun, OnAllRanks) { expect_survives_stops({"run.max_policy_lag=1"}); }

TEST_F(ToyRun, BesideTheTrainer) {
  expect_survives_stops({"run.max_policy_lag=1", "roles.rollout.ranks=\"0\"", "roles.trainer.ranks=\"1\""});
}

/// What the first rank of a team says of memory is that of the rank with most.
TEST_F(ToyRun, ATeamKnowsTheLargestValuesOfItsRanks) {
  const double mine = comm_->rank() == 0 ? 1 : 2;
  const std::map<std::string, double> values{{"a", mine}, {"b", -mine}};
  EXPECT_EQ(Team(*comm_).largest(values, "test: values of a team"),
            (std::map<std::string, double>{{"a", 2}, {"b", -1}}));
  EXPECT_EQ(Team().largest(values, "test: of one rank"), values);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }
