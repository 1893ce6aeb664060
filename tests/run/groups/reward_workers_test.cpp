// Rewards on threads: every group comes back once with the scores that a plain loop gives, whatever the
// number of threads and the order of submission; an error comes out of collect, and the workers can be used
// again or left.

#include "src/run/groups/reward_workers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <system_error>

#include "tests/support/expect_error.h"

namespace temper {
namespace {

RewardSet rewards() { return RewardSet({{{.name = "exact"}, {.name = "math", .weight = 0.5}}}); }

/// One sample is right, one is nearly, one is nonsense; `size` makes it slow.
Group make_group(int32_t index, int64_t size = 0) {
  Group group;
  const std::string answer = std::to_string(index);
  for (const std::string& response : {answer, "so it is \\boxed{" + answer + "}", std::string("no idea")}) {
    Trajectory t;
    t.group = index;
    t.sample = static_cast<int32_t>(group.samples.size());
    t.response.text = std::string(static_cast<size_t>(size), '{') + response;
    t.answer = answer;
    t.response.tokens.assign(5, 1);
    group.samples.push_back(t);
  }
  return group;
}

std::shared_ptr<const Json> record() { return std::make_shared<const Json>(Json::object()); }

std::vector<Group> in_order(std::vector<Group> groups) {
  std::sort(groups.begin(), groups.end(),
            [](const Group& a, const Group& b) { return a.samples[0].group < b.samples[0].group; });
  return groups;
}

void expect_scored(const std::vector<Group>& collected, std::vector<Group> submitted,
                   const std::string& what) {
  const RewardSet set = rewards();
  for (Group& group : submitted)
    for (Trajectory& t : group.samples) set.score(t, Json::object());
  const std::vector<Group> got = in_order(collected), want = in_order(submitted);
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t g = 0; g < want.size(); ++g) {
    ASSERT_EQ(got[g].samples.size(), want[g].samples.size()) << what;
    for (size_t i = 0; i < want[g].samples.size(); ++i) {
      const Trajectory &a = got[g].samples[i], &b = want[g].samples[i];
      EXPECT_EQ(a.group, b.group) << what;
      EXPECT_EQ(a.sample, b.sample) << what << ": samples keep their order";
      EXPECT_EQ(a.response.text, b.response.text) << what;
      EXPECT_EQ(a.reward, b.reward) << what;
      EXPECT_EQ(a.raw_reward, b.raw_reward) << what;
      EXPECT_EQ(a.reward_parts, b.reward_parts) << what;
    }
  }
}

TEST(RewardWorkers, ScoresLikeAPlainLoop) {
  const RewardSet set = rewards();
  for (int threads : {1, 2, 5}) {
    RewardWorkers workers(set, threads);
    for (int32_t round = 0; round < 3; ++round) {
      std::vector<Group> submitted;
      for (int32_t i = 0; i < 40; ++i) submitted.push_back(make_group((i * 7 + round) % 40));
      for (const Group& group : submitted) workers.submit(group, record());
      expect_scored(workers.collect(), submitted, fmt::format("{} threads, round {}", threads, round));
    }
  }
}

TEST(RewardWorkers, TheScoresTellRightFromWrong) {
  const RewardSet set = rewards();
  RewardWorkers workers(set, 2);
  workers.submit(make_group(42), record());
  const std::vector<Group> groups = workers.collect();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_GE(groups[0].samples[0].reward, 1.0);
  EXPECT_EQ(groups[0].samples[1].reward, 0.5);
  EXPECT_EQ(groups[0].samples[2].reward, 0.0);
}

TEST(RewardWorkers, SlowOnesAmongQuickOnes) {
  const RewardSet set = rewards();
  RewardWorkers workers(set, 3);
  std::vector<Group> submitted;
  for (int32_t i = 0; i < 30; ++i) submitted.push_back(make_group(i, i % 7 == 0 ? 1'000'000 : 0));
  for (const Group& group : submitted) workers.submit(group, record());
  expect_scored(workers.collect(), submitted, "slow");
}

TEST(RewardWorkers, NothingSubmitted) {
  const RewardSet set = rewards();
  RewardWorkers workers(set, 2);
  EXPECT_TRUE(workers.collect().empty());
  workers.submit(Group{}, record());
  const std::vector<Group> groups = workers.collect();
  ASSERT_EQ(groups.size(), 1u) << "a group without samples is a group";
  EXPECT_TRUE(groups[0].samples.empty());
}

TEST(RewardWorkers, AnErrorComesOutOfCollectOnce) {
  // A response that is right for both functions has no finite sum at these weights.
  const RewardSet set({{{.name = "exact", .weight = 1.5e308}, {.name = "math", .weight = 1.5e308}}});
  Group wrong = make_group(3), right = make_group(4);
  wrong.samples.erase(wrong.samples.begin(), wrong.samples.begin() + 2);
  right.samples.resize(1);
  right.samples[0].response.text = right.samples[0].answer = "\\boxed{4}";
  for (int threads : {1, 4}) {
    RewardWorkers workers(set, threads);
    for (int i = 0; i < 20; ++i) workers.submit(i % 5 == 2 ? right : wrong, record());
    expect_error(Exit::numerics, {"not finite", "reward.functions"}, "infinite", [&] { workers.collect(); });
    EXPECT_TRUE(workers.collect().empty()) << "groups of the failed round do not come later";
    workers.submit(wrong, record());
    EXPECT_EQ(workers.collect().size(), 1u) << "the threads are still there";
  }
}

TEST(RewardWorkers, LeavingWithWorkUnderWayDoesNotWaitForAllOfIt) {
  const RewardSet set = rewards();
  RewardWorkers workers(set, 2);
  for (int32_t i = 0; i < 1000; ++i) workers.submit(make_group(i, 10'000), record());
}

/// A limit on addresses (`ulimit -v`) lets some threads begin and not all: these end.
TEST(RewardWorkers, AThreadThatFindsNoRoomIsAnError) {
  const RewardSet set = rewards();
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit some{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{256} << 20),
                    before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &some), 0);
  EXPECT_THROW(RewardWorkers(set, 5000), std::system_error);
  ::setrlimit(RLIMIT_AS, &before);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
