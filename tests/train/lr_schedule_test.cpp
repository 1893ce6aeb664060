#include "src/train/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace temper {
namespace {

OptimizerConfig config(const char* schedule, int64_t warmup = 0, double min_ratio = 0) {
  OptimizerConfig c;
  c.lr = 2e-3;
  c.schedule = schedule;
  c.warmup_steps = warmup;
  c.min_lr_ratio = min_ratio;
  return c;
}

TEST(LrSchedule, WarmUpEndsAtTheFullRate) {
  for (const char* schedule : {"constant", "linear", "cosine", "wsd"}) {
    const OptimizerConfig c = config(schedule, 4, 0.1);
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_DOUBLE_EQ(learning_rate(c, i, 20), 2e-3 * static_cast<double>(i + 1) / 4) << schedule << i;
    EXPECT_DOUBLE_EQ(learning_rate(c, 4, 20), 2e-3) << schedule;
  }
}

TEST(LrSchedule, Constant) {
  for (int64_t i : {0, 7, 99, 1000}) EXPECT_EQ(learning_rate(config("constant"), i, 100), 2e-3);
}

TEST(LrSchedule, LinearFallsToTheMinimum) {
  const OptimizerConfig c = config("linear", 10, 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(c, 60, 110), 2e-3 * 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(c, 35, 110), 2e-3 * 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(c, 110, 110), 2e-3 * 0.2);
}

TEST(LrSchedule, CosinePassesTheQuarters) {
  const OptimizerConfig c = config("cosine", 0, 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(c, 0, 100), 2e-3);
  EXPECT_NEAR(learning_rate(c, 50, 100), 2e-3 * 0.55, 1e-18);
  EXPECT_NEAR(learning_rate(c, 25, 100), 2e-3 * (0.1 + 0.45 * (1 + std::sqrt(0.5))), 1e-18);
  EXPECT_NEAR(learning_rate(c, 100, 100), 2e-3 * 0.1, 1e-18);
}

TEST(LrSchedule, WsdDecaysOverTheLastTenth) {
  const OptimizerConfig c = config("wsd", 0, 0.5);
  for (int64_t i = 0; i < 90; ++i) EXPECT_EQ(learning_rate(c, i, 100), 2e-3) << i;
  EXPECT_NEAR(learning_rate(c, 95, 100), 2e-3 * 0.75, 1e-15);
  EXPECT_NEAR(learning_rate(c, 100, 100), 2e-3 * 0.5, 1e-15);
}

TEST(LrSchedule, NeverRisesAfterWarmUpNorLeavesItsRange) {
  for (const char* schedule : {"constant", "linear", "cosine", "wsd"})
    for (const int64_t total : {1, 2, 7, 50}) {
      const OptimizerConfig c = config(schedule, 3, 0.05);
      double last = 2e-3;
      for (int64_t i = 3; i < total + 20; ++i) {
        const double lr = learning_rate(c, i, total);
        EXPECT_TRUE(lr <= last && lr >= 2e-3 * 0.05 * (1 - 1e-12)) << schedule << " " << i << " of " << total;
        last = lr;
      }
    }
}

TEST(LrSchedule, WarmUpLongerThanTheRun) {
  const OptimizerConfig c = config("cosine", 100);
  EXPECT_DOUBLE_EQ(learning_rate(c, 9, 10), 2e-3 * 0.1);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
