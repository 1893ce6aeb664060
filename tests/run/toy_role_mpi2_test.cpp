// A role that is added by a file and a row, in whole runs on two ranks: with all roles on both, and beside
// the trainer while another rank generates.

#include "tests/run/toy_run.h"

namespace temper {
namespace {

TEST_F(ToyRun, OnAllRanks) { expect_survives_stops({"run.max_policy_lag=1"}); }

TEST_F(ToyRun, BesideTheTrainer) {
  expect_survives_stops({"run.max_policy_lag=1", "roles.rollout.ranks=\"0\"", "roles.trainer.ranks=\"1\""});
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }
