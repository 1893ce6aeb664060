// A run of 12 steps, against the same run gone on from a checkpoint after k of them: they leave the same.
// Through the program itself, on two ranks.

#include "tests/support/run_fixture.h"
#include "tests/support/run_list.h"
#include "tests/support/same_run.h"

namespace temper {
namespace {

constexpr int kSteps = 12;

/// The KL and entropy terms give gradients although a random model never earns a reward.
const char* kConfig = R"(
run.name = "whole"
run.steps = 12
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 5
rollout.samples_per_prompt = 3
rollout.max_new_tokens = 12
train.samples_per_update = 7
train.last_partial = "keep"
optimizer.schedule = "cosine"
checkpoint.every = 1
checkpoint.keep = 20
checkpoint.export_hf_every = 12
)";

class StopAndResume : public RunFixture {
 protected:
  void SetUp() override { prepare(kConfig, sums(23)); }

  static std::string train(const std::string& name) { return "train run.toml run.name=" + name; }
  void expect_same_run(const std::string& name) const {
    EXPECT_EQ(run_difference(program_, "whole", name), "");
  }
  void copy_until(const std::string& name, int step) const {
    RunFixture::copy_until("whole", name, step, kSteps);
  }
};

TEST_F(StopAndResume, GoesOnBitForBit) {
  ASSERT_EQ(run_each({{2, train("whole")}, {2, train("again")}}), 0) << output();
  EXPECT_EQ(steps_done("whole"), kSteps);
  expect_same_run("again");
  const auto from = [](int step) { return "from" + std::to_string(step); };
  std::vector<RanksRun> rest;
  for (int step : {1, 4, 7, 11}) {
    copy_until(from(step), step);
    rest.push_back({2, train(from(step))});
  }
  ASSERT_EQ(run_each(rest), 0) << output();
  for (int step : {1, 4, 7, 11}) {
    EXPECT_TRUE(logged(from(step), fmt::format("{0}, step {1}", step_name(step), step))) << step;
    expect_same_run(from(step));
  }
  copy_until("damaged", 6);
  damage(checkpoint("damaged", 6) + "/rank-0001.h5");
  EXPECT_EQ(program_.run("verify --checkpoint runs/damaged"), 65);
  EXPECT_TRUE(says("rank-0001.h5")) << output();
  ASSERT_EQ(program_.run_ranks(2, train("damaged")), 0) << output();  // goes on from step 5
  expect_same_run("damaged");
  copy_until("wider", 6);
  EXPECT_EQ(program_.run_ranks(3, train("wider")), 0) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
