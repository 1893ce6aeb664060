// A run of 12 steps with tensor, pipeline and data parallel trainers, a rollout that is a step ahead and
// responses that take several steps: gone on after each of them, it leaves what the whole one leaves.

#include "tests/e2e/layout_run.h"
#include "tests/support/run_list.h"
#include "tests/support/same_run.h"

namespace temper {
namespace {

constexpr int kLongRun = 12;

TEST_F(LayoutRun, GoesOnAfterEveryStepWithALagAndPartialRollouts) {
  const Placement tp2pp2dp2 = layout("tp2pp2dp2", 8, 2, 2);
  const std::string more = kSmall + kDeepModel +
                           "run.steps=12 checkpoint.export_hf_every=12 rollout.tokens_per_step=3 "
                           "rollout.stop='[\"e\",\"a\"]'";
  ASSERT_EQ(train(tp2pp2dp2, 1, "whole", more), 0) << output();
  ASSERT_EQ(train(tp2pp2dp2, 1, "again", more), 0) << output();
  EXPECT_EQ(run_difference(program_, "again", "whole"), "");
  for (int step = 1; step < kLongRun; ++step) {
    const std::string name = fmt::format("after-{}", step);
    copy_until("whole", name, step, kLongRun);
    ASSERT_EQ(train(tp2pp2dp2, 1, name, more), 0) << output();
    EXPECT_TRUE(says(fmt::format("step {}", step + 1))) << output();
    EXPECT_EQ(run_difference(program_, name, "whole"), "") << name;
    std::filesystem::remove_all(program_.path("runs/" + name));
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
