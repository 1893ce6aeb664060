// A run of 12 steps, against the same run gone on from a checkpoint after k of them: they leave the same.
// Through the program itself, on two ranks.

#include "tests/support/run_fixture.h"
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

  int train(int ranks, const std::string& name) const {
    return program_.run_ranks(ranks, "train run.toml run.name=" + name);
  }
  void expect_same_run(const std::string& name) const {
    EXPECT_EQ(run_difference(program_, "whole", name), "");
  }
  void copy_until(const std::string& name, int step) const {
    RunFixture::copy_until("whole", name, step, kSteps);
  }
};

TEST_F(StopAndResume, GoesOnBitForBit) {
  ASSERT_EQ(train(2, "whole"), 0) << output();
  EXPECT_EQ(steps_done("whole"), kSteps);
  ASSERT_EQ(train(2, "again"), 0) << output();
  expect_same_run("again");
  for (int step : {1, 4, 7, 11}) {
    const std::string name = "from" + std::to_string(step);
    copy_until(name, step);
    ASSERT_EQ(train(2, name), 0) << output();
    EXPECT_TRUE(says(fmt::format("step {}", step))) << output();
    expect_same_run(name);
  }
  copy_until("damaged", 6);
  damage(checkpoint("damaged", 6) + "/rank-0001.h5");
  EXPECT_EQ(program_.run("verify --checkpoint runs/damaged"), 65);
  EXPECT_TRUE(says("rank-0001.h5")) << output();
  ASSERT_EQ(train(2, "damaged"), 0) << output();  // goes on from step 5
  expect_same_run("damaged");
  copy_until("wider", 6);
  EXPECT_EQ(train(3, "wider"), 0) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
