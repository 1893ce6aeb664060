// The line that says what a job is at, of ranks that are at several works.

#include "src/comm/watch/progress_line.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

ProgressState at(int64_t step, Phase phase, const WorkState& work) {
  ProgressState s;
  s.step = step, s.phase = phase, s.work = work;
  return s;
}

TEST(ProgressLine, AddsUpTheRanks) {
  ProgressLine line(0.5);
  const auto state = [](int64_t done, int64_t total, int64_t tokens) {
    return at(3, Phase::train, {3, Phase::train, done, total, tokens});
  };
  EXPECT_EQ(line.due(std::vector{state(0, 64, 0), state(0, 0, 0)}, 1.0), "");
  EXPECT_EQ(line.due(std::vector{state(4, 64, 1000), state(6, 0, 3000)}, 2.0),
            "step 3: training, 10/64 samples, 4.0k tok/s");
  EXPECT_EQ(line.due(std::vector{state(4, 64, 1000), state(6, 0, 3000)}, 2.1), "") << "within the interval";
}

/// The rank that others wait for says it; what a rank did that is ahead of it stays counted.
TEST(ProgressLine, RanksAheadStayCounted) {
  ProgressLine line(0.5);
  const ProgressState late = at(3, Phase::train, {3, Phase::train, 8, 0, 500});
  line.due(std::vector{at(3, Phase::train, {3, Phase::train, 50, 64, 0}), late}, 1.0);
  EXPECT_EQ(line.due(std::vector{at(3, Phase::train, {3, Phase::train, 56, 64, 1500}), late}, 2.0),
            "step 3: training, 64/64 samples, 1.5k tok/s");
  EXPECT_EQ(line.due(std::vector{at(3, Phase::validation, {3, Phase::validation, 1, 24, 10}), late}, 3.0),
            "step 3: training, 64/64 samples, 750 tok/s");
}

TEST(ProgressLine, SaysNoNumbersBeforeItIsKnownHowMuchThereIs) {
  ProgressLine line(0.5);
  const ProgressState early = at(3, Phase::train, {3, Phase::train, 0, 0, 0}),
                      waits = at(3, Phase::rollout, {3, Phase::rollout, 4, 4, 10});
  line.due(std::vector{waits, early}, 1.0);
  ProgressState idle = waits;
  idle.waits = 1;
  idle.work = {};
  EXPECT_EQ(line.due(std::vector{idle, early}, 2.0), "step 3: training");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
