// A run of 12 steps, against the same run gone on from a checkpoint after k of them: metrics (but timing_s/
// and perf/) and exported weights are the same bytes. Through the program itself, on two ranks.

#include "tests/support/run_fixture.h"

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
  std::string weights(const std::string& name) const { return exported_weights(name, kSteps); }
  void copy_until(const std::string& name, int step) const {
    RunFixture::copy_until("whole", name, step, kSteps);
  }
};

TEST_F(StopAndResume, GoesOnBitForBit) {
  ASSERT_EQ(train(2, "whole"), 0) << output();
  const std::string all = metrics("whole"), exported = weights("whole");
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), kSteps);
  ASSERT_EQ(train(2, "again"), 0) << output();
  EXPECT_EQ(metrics("again"), all);
  EXPECT_EQ(weights("again"), exported);
  for (int step : {1, 4, 7, 11}) {
    const std::string name = "from" + std::to_string(step);
    copy_until(name, step);
    ASSERT_EQ(train(2, name), 0) << output();
    EXPECT_TRUE(says(fmt::format("step {}", step))) << output();
    EXPECT_EQ(metrics(name), all) << "after step " << step;
    EXPECT_EQ(weights(name), exported) << "after step " << step;
  }
  copy_until("damaged", 6);
  damage(checkpoint("damaged", 6) + "/rank-0001.h5");
  EXPECT_EQ(program_.run("verify --checkpoint runs/damaged"), 65);
  EXPECT_TRUE(says("rank-0001.h5")) << output();
  ASSERT_EQ(train(2, "damaged"), 0) << output();  // goes on from step 5
  EXPECT_EQ(weights("damaged"), exported);
  copy_until("wider", 6);
  EXPECT_EQ(train(3, "wider"), 0) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
