// The order of a pipeline's work: the lists themselves, what is kept, how long ranks are idle when every step
// waits for what it needs, and that the exchanges of all ranks meet.

#include "src/train/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "src/core/check.h"

namespace temper {
namespace {

std::string order(const PipelineShape& shape, int rank, int64_t microbatches) {
  std::string text;
  for (const ScheduleStep& s : training_steps(shape, rank, microbatches)) {
    text += fmt::format("{}{}", s.backward ? "B" : "F", s.microbatch);
    text += shape.chunks > 1 ? fmt::format(".{} ", s.chunk) : " ";
  }
  return text;
}

TEST(Schedule, IsOneForwardOneBackward) {
  const PipelineShape four{4, 1};
  EXPECT_EQ(order(four, 0, 8), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7 ");
  EXPECT_EQ(order(four, 1, 8), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7 ");
  EXPECT_EQ(order(four, 2, 8), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7 ");
  EXPECT_EQ(order(four, 3, 8), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 ");
  EXPECT_EQ(order(four, 0, 2), "F0 F1 B0 B1 ") << "fewer micro-batches than stages";
  EXPECT_EQ(order({1, 1}, 0, 3), "F0 B0 F1 B1 F2 B2 ");
  EXPECT_EQ(order({3, 1}, 1, 0), "");
}

TEST(Schedule, IsInterleaved) {
  EXPECT_EQ(order({2, 2}, 0, 4),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0 ");
  EXPECT_EQ(order({2, 2}, 1, 4),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0 ");
  EXPECT_EQ(order({4, 2}, 3, 8),
            "F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4.0 B0.0 F5.0 B1.0 F6.0 B2.0 F7.0 "
            "B3.0 F4.1 B4.1 F5.1 B5.1 F6.1 B6.1 F7.1 B7.1 B4.0 B5.0 B6.0 B7.0 ");
}

template <class Try>
void for_each_shape(const Try& tries) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int chunks = 1; chunks <= (ranks > 1 ? 4 : 1); ++chunks)
      for (int64_t microbatches = 1; microbatches <= 24; ++microbatches) {
        SCOPED_TRACE(fmt::format("{} ranks, {} parts each, {} micro-batches", ranks, chunks, microbatches));
        tries(PipelineShape{ranks, chunks}, microbatches);
      }
}

/// Each pass once, the backward after its forward, those of a part in ascending order: so that the sums of
/// its gradients do not depend on the number of parts.
TEST(Schedule, MakesEachPassOnce) {
  for_each_shape([](const PipelineShape& shape, int64_t microbatches) {
    for (int rank = 0; rank < shape.ranks; ++rank) {
      std::map<std::pair<bool, int>, int64_t> next;
      for (const ScheduleStep& s : training_steps(shape, rank, microbatches)) {
        EXPECT_EQ(s.microbatch, (next[{s.backward, s.chunk}]++));
        EXPECT_LE((next[{true, s.chunk}]), (next[{false, s.chunk}]));
      }
      for (int chunk = 0; chunk < shape.chunks; ++chunk) {
        EXPECT_EQ((next[{false, chunk}]), microbatches);
        EXPECT_EQ((next[{true, chunk}]), microbatches);
      }
    }
  });
}

TEST(Schedule, KeepsNoMoreThanItSays) {
  EXPECT_EQ(most_kept({4, 1}, 0, 8), 4);
  EXPECT_EQ(most_kept({4, 1}, 3, 8), 1);
  const int64_t interleaved[] = {11, 9, 7, 5};
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(most_kept({4, 2}, rank, 8), interleaved[rank]);
  EXPECT_EQ(most_kept({4, 1}, 0, 2), 2) << "fewer micro-batches than stages";
  EXPECT_EQ(most_kept({4, 1}, 0, 0), 0);
}

/// Runs the lists of all ranks, each step as soon as its rank and its input are ready. By stages of all
/// parts.
class Clock {
 public:
  Clock(const PipelineShape& shape, int64_t microbatches, int64_t forward, int64_t backward)
      : shape_(shape), forward_(forward), backward_(backward), free_(static_cast<size_t>(shape.ranks), 0) {
    for (int r = 0; r < shape.ranks; ++r) lists_.push_back(training_steps(shape, r, microbatches));
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
    for (size_t r = 0; r < lists_.size(); ++r)
      while (!lists_[r].empty() && run(r, lists_[r].front())) {
        lists_[r].erase(lists_[r].begin());
        moved = true;
      }
    return moved;
  }
  bool run(size_t rank, const ScheduleStep& step) {
    const int stage = step.chunk * shape_.ranks + static_cast<int>(rank);
    const bool last = stage + 1 == shape_.ranks * shape_.chunks;
    std::tuple<bool, int, int64_t> needs{step.backward, stage + (step.backward ? 1 : -1), step.microbatch};
    if (step.backward && last) needs = {false, stage, step.microbatch};
    if (std::get<1>(needs) >= 0 && !done_.contains(needs)) return false;
    const int64_t ready = std::get<1>(needs) >= 0 ? done_[needs] : 0;
    const int64_t end = std::max(ready, free_[rank]) + (step.backward ? backward_ : forward_);
    done_[{step.backward, stage, step.microbatch}] = free_[rank] = end;
    return true;
  }

  PipelineShape shape_;
  int64_t forward_, backward_;
  std::vector<int64_t> free_;  // of each rank, when its last step has ended
  std::vector<std::vector<ScheduleStep>> lists_;
  std::map<std::tuple<bool, int, int64_t>, int64_t> done_;
};

TEST(Schedule, IsIdleForAsLongAsTheFormulaSays) {
  EXPECT_EQ(Clock({4, 1}, 8, 1, 2).end(), 33);
  EXPECT_EQ(Clock({4, 2}, 8, 1, 2).end(), 57);
  for_each_shape([](const PipelineShape& shape, int64_t microbatches) {
    const Clock clock(shape, microbatches, 1, 2);
    EXPECT_FALSE(clock.is_stuck());
    if (shape.chunks > 1 && microbatches % shape.ranks != 0) return;
    EXPECT_EQ(clock.end(), (microbatches * shape.chunks + shape.ranks - 1) * 3);
    for (int rank = 0; rank < shape.ranks; ++rank)
      EXPECT_EQ(schedule(shape, rank, microbatches, training_steps).idle, 2 * (shape.ranks - 1));
  });
}

/// Ranks that wait in an exchange until all of it has been taken and come.
class Meeting {
 public:
  using Steps = std::vector<ScheduleStep> (*)(const PipelineShape&, int, int64_t);
  Meeting(const PipelineShape& shape, int64_t microbatches, Steps steps) : shape_(shape) {
    for (int r = 0; r < shape.ranks; ++r) {
      all_.push_back(schedule(shape, r, microbatches, steps));
      borders_.emplace_back(static_cast<size_t>(all_.back().borders));
      at_.push_back(0);
      enter(r);
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < shape.ranks; ++r) moved |= go_on(r);
    }
  }
  std::string defect() const {
    for (size_t r = 0; r < all_.size(); ++r)
      if (at_[r] < all_[r].slots.size()) return fmt::format("rank {} waits at {}", r, at_[r]);
    return defect_;
  }

 private:
  const ScheduleSlot* slot(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return at_[r] < all_[r].slots.size() ? &all_[r].slots[at_[r]] : nullptr;
  }
  /// What this rank gives and wants now.
  void enter(int rank) {
    const ScheduleSlot* const now = slot(rank);
    if (!now) return;
    for (const ScheduleSlot::Send& send : now->sends) {
      std::string& lies = borders_[static_cast<size_t>(rank)][static_cast<size_t>(send.border)];
      given_[{rank, send.to}] = lies;
      lies.clear();
    }
    if (now->from >= 0) wanted_[{now->from, rank}] = needed(rank, *now->step);
  }
  bool go_on(int rank) {
    const ScheduleSlot* const now = slot(rank);
    if (!now) return false;
    for (const ScheduleSlot::Send& send : now->sends)
      if (given_.contains({rank, send.to}) && !meet(rank, send.to)) return false;
    if (now->from >= 0 && wanted_.contains({now->from, rank}) && !meet(now->from, rank)) return false;
    if (now->border >= 0) {
      std::string& lies = borders_[static_cast<size_t>(rank)][static_cast<size_t>(now->border)];
      if (!lies.empty()) defect_ = "a border is written before it was sent";
      lies = text(rank, *now->step);
    }
    ++at_[static_cast<size_t>(rank)];
    enter(rank);
    return true;
  }
  bool meet(int from, int to) {
    const auto given = given_.find({from, to}), wanted = wanted_.find({from, to});
    if (given == given_.end() || wanted == wanted_.end()) return false;
    if (given->second != wanted->second)
      defect_ = fmt::format("{} gives {}, {} wants {}", from, given->second, to, wanted->second);
    given_.erase(given), wanted_.erase(wanted);
    return true;
  }
  std::string text(int rank, const ScheduleStep& s) const {
    return fmt::format("{}{} of {}", s.backward ? "B" : "F", s.microbatch, s.chunk * shape_.ranks + rank);
  }
  std::string needed(int rank, const ScheduleStep& s) const {
    const int stage = s.chunk * shape_.ranks + rank + (s.backward ? 1 : -1);
    return fmt::format("{}{} of {}", s.backward ? "B" : "F", s.microbatch, stage);
  }

  PipelineShape shape_;
  std::vector<Schedule> all_;
  std::vector<size_t> at_;
  std::vector<std::vector<std::string>> borders_;
  std::map<std::pair<int, int>, std::string> given_, wanted_;
  std::string defect_;
};

TEST(Schedule, NoRankWaitsForEver) {
  for_each_shape([](const PipelineShape& shape, int64_t microbatches) {
    EXPECT_EQ(Meeting(shape, microbatches, training_steps).defect(), "");
    EXPECT_EQ(Meeting(shape, microbatches, forward_steps).defect(), "");
  });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
