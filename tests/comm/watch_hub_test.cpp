// Who connects to the place where the progress of all ranks comes together: ranks are known by the word of
// the job, and strangers neither take its room nor keep ranks out.

#include "src/comm/watch/watch_hub.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "src/core/file.h"

namespace temper {
namespace {

constexpr WatchWord kWord{0x0123456789abcdef, 0xfedcba9876543210};

size_t open_descriptors() { return list_directory("/proc/self/fd").size(); }

ProgressState state(uint64_t count, Phase phase) {
  ProgressState s;
  s.count = count;
  s.phase = phase;
  return s;
}

class WatchedJob : public ::testing::Test {
 protected:
  WatchedJob() {
    Socket listener = listen_anywhere();
    address_ = address_of(listener);
    hub_.emplace(std::move(listener), 0, kWord, std::vector<RankPlace>{{"host", 1}, {"host", 2}}, 5.0, 0.0);
  }
  /// A line of a process that says this word.
  Socket line(const WatchWord& word, int rank = 1) const {
    Socket socket = connect_to(address_);
    const WatchMessage hello{word, rank, WatchMessage::alive, state(1, Phase::rollout)};
    EXPECT_TRUE(socket.send(&hello, sizeof hello));
    return socket;
  }
  void look(double now) { hub_->look(state(++count_, Phase::rollout), now); }
  bool is_silent(double now) const { return hub_->judge(now, true).has_value(); }

  std::string address_;
  std::optional<WatchHub> hub_;
  uint64_t count_ = 0;
};

TEST_F(WatchedJob, IdleLinesOfStrangersDoNotTakeItsDescriptors) {
  const size_t before = open_descriptors();
  std::vector<Socket> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(connect_to(address_));
  look(0.1);
  look(0.2);
  EXPECT_LE(open_descriptors(), before + idle.size() + WatchHub::kMostNewcomers);
  const Socket rank = line(kWord);
  look(4);
  look(4.1);
  EXPECT_LE(open_descriptors(), before + idle.size() + 2) << "who says nothing in a second is dropped";
  EXPECT_FALSE(is_silent(6)) << "the rank behind the strangers was heard";
}

TEST_F(WatchedJob, OnlyTheWordMakesARank) {
  const Socket stranger = line({kWord[0], 0});
  look(0.1);
  look(4);
  EXPECT_TRUE(is_silent(6));
  std::string bytes;
  Socket refused = line({0, kWord[1]});
  look(4.1);
  EXPECT_FALSE(refused.receive(bytes)) << "it was kept";
  const Socket rank = line(kWord);
  look(4.2);
  EXPECT_FALSE(is_silent(6));
}

TEST(WatchedRank, AloneIsJudgedByItsOwnProgress) {
  WatchHub hub({}, 0, kWord, {{"host", 1}}, 5.0, 0.0);
  hub.look(state(1, Phase::save), 1.0);
  EXPECT_FALSE(hub.judge(5.9, true));
  hub.look(state(1, Phase::save), 6.1);
  const std::optional<Verdict> stuck = hub.judge(6.1, true);
  ASSERT_TRUE(stuck);
  EXPECT_FALSE(stuck->died);
  EXPECT_NE(stuck->text.find("rank 0 on host host makes no progress in save"), std::string::npos)
      << stuck->text;
  ProgressState waits = state(1, Phase::rollout);
  waits.waits = 1;
  std::snprintf(waits.what, sizeof waits.what, "an answer");
  hub.look(waits, 6.2);
  const std::optional<Verdict> waiting = hub.judge(6.2, true);
  ASSERT_TRUE(waiting);
  EXPECT_NE(waiting->text.find("it waits in 'an answer'"), std::string::npos) << waiting->text;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
