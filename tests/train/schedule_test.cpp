// The order of a pipeline's work: the lists themselves, what is kept, and how long stages are idle when every
// step waits for what it needs.

#include "src/train/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "src/core/check.h"

namespace temper {
namespace {

std::string order(int stage, int stages, int64_t microbatches) {
  std::string text;
  for (const ScheduleStep& s : one_forward_one_backward(stage, stages, microbatches))
    text += fmt::format("{}{} ", s.backward ? "B" : "F", s.microbatch);
  return text;
}

TEST(Schedule, IsOneForwardOneBackward) {
  EXPECT_EQ(order(0, 4, 8), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7 ");
  EXPECT_EQ(order(1, 4, 8), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7 ");
  EXPECT_EQ(order(2, 4, 8), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7 ");
  EXPECT_EQ(order(3, 4, 8), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 ");
  EXPECT_EQ(order(0, 4, 2), "F0 F1 B0 B1 ") << "fewer micro-batches than stages";
  EXPECT_EQ(order(0, 1, 3), "F0 B0 F1 B1 F2 B2 ");
  EXPECT_EQ(order(1, 3, 0), "");
}

TEST(Schedule, KeepsNoMoreThanItSays) {
  for (int stages = 1; stages <= 6; ++stages)
    for (int stage = 0; stage < stages; ++stage)
      for (const int64_t microbatches : {0, 1, 2, 5, 17}) {
        int64_t kept = 0, most = 0;
        for (const ScheduleStep& s : one_forward_one_backward(stage, stages, microbatches)) {
          kept += s.backward ? -1 : 1;
          most = std::max(most, kept);
        }
        EXPECT_EQ(kept, 0);
        EXPECT_EQ(most, std::min(microbatches, most_kept(stage, stages)));
      }
}

/// Runs the lists of all stages, each step as soon as its stage and its input are ready.
class Clock {
 public:
  Clock(int stages, int64_t microbatches, int64_t forward, int64_t backward)
      : forward_(forward), backward_(backward), free_(static_cast<size_t>(stages), 0) {
    for (int s = 0; s < stages; ++s) lists_.push_back(one_forward_one_backward(s, stages, microbatches));
    done_[0] =
        done_[1] = {static_cast<size_t>(stages), std::vector<int64_t>(static_cast<size_t>(microbatches), -1)};
    while (advance()) {
    }
  }
  bool is_stuck() const {
    return std::any_of(lists_.begin(), lists_.end(), [](const auto& list) { return !list.empty(); });
  }
  int64_t end() const { return *std::max_element(free_.begin(), free_.end()); }

 private:
  bool advance() {
    bool moved = false;
    for (size_t s = 0; s < lists_.size(); ++s)
      while (!lists_[s].empty() && run(s, lists_[s].front())) {
        lists_[s].erase(lists_[s].begin());
        moved = true;
      }
    return moved;
  }
  bool run(size_t stage, const ScheduleStep& step) {
    const auto i = static_cast<size_t>(step.microbatch);
    const bool last = stage + 1 == lists_.size();
    int64_t ready = 0;
    if (step.backward) ready = last ? done_[0][stage][i] : done_[1][stage + 1][i];
    if (!step.backward && stage > 0) ready = done_[0][stage - 1][i];
    if (ready < 0) return false;
    const int64_t end = std::max(ready, free_[stage]) + (step.backward ? backward_ : forward_);
    done_[step.backward ? 1 : 0][stage][i] = free_[stage] = end;
    return true;
  }

  int64_t forward_, backward_;
  std::vector<int64_t> free_;  // of each stage, when its last step has ended
  std::vector<std::vector<ScheduleStep>> lists_;
  std::vector<std::vector<int64_t>> done_[2];  // forwards, backwards: when; < 0: not yet
};

TEST(Schedule, IsIdleForAsLongAsTheFormulaSays) {
  EXPECT_EQ(Clock(4, 8, 1, 2).end(), 33);
  for (int stages = 1; stages <= 6; ++stages)
    for (const int64_t microbatches : {1, 2, 6, 16}) {
      const Clock clock(stages, microbatches, 1, 2);
      EXPECT_FALSE(clock.is_stuck());
      EXPECT_EQ(clock.end() - microbatches * 3, (stages - 1) * 3) << stages << " stages, " << microbatches;
    }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
