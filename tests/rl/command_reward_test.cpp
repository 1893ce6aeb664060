// A reward that a program says: what it answers, and every way in which a program can fail to.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "src/core/file.h"
#include "src/rl/registry.h"
#include "src/rl/rewards/command/command.h"
#include "src/rl/rewards/reward_set.h"
#include "tests/support/expect_error.h"
#include "tests/support/processes.h"
#include "tests/support/reward_program.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

using Lists = std::map<std::string, std::vector<std::string>>;

/// A folder that is the working folder as long as it lives.
struct WorkingFolder {
  WorkingFolder() : before(std::filesystem::current_path()) { std::filesystem::current_path(folder.path()); }
  ~WorkingFolder() { std::filesystem::current_path(before); }
  TempDir folder;
  std::filesystem::path before;
};

class CommandRewards : public ::testing::Test {
 protected:
  void SetUp() override { write_file_atomic("reward.sh", kRewardProgram); }

  static RewardFunctionConfig config(const std::map<std::string, double>& numbers = {},
                                     const std::string& on_error = "exclude") {
    return {.name = "command",
            .numbers = numbers,
            .strings = {{"on_error", on_error}},
            .lists = {{"argv", {"sh", "reward.sh"}}}};
  }
  std::unique_ptr<Reward> reward(const std::map<std::string, double>& numbers = {},
                                 const std::string& on_error = "exclude") {
    return make_reward(config(numbers, on_error), &helpers_);
  }
  static Verdict ask(const Reward& reward, const std::string& response, int answer = 4) {
    const Json record = Json::object();
    const std::string text = std::to_string(answer);
    return reward.score({.prompt = "a \"prompt\"\n", .response = response, .answer = text, .record = record});
  }
  /// Counts of the step, without those that are 0.
  static std::map<std::string, double> counts(const Reward& reward) {
    std::map<std::string, double> all = reward.end_step();
    std::erase_if(all, [](const auto& count) { return count.second == 0; });
    return all;
  }
  static std::vector<pid_t> pids() {
    std::ifstream file("pids");
    return {std::istream_iterator<pid_t>(file), {}};
  }
  /// Waits until none of them runs.
  static bool gone(const std::vector<pid_t>& programs) {
    for (int i = 0; i < 3000; ++i) {
      if (std::none_of(programs.begin(), programs.end(), [](pid_t p) { return ::kill(p, 0) == 0; }))
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  WorkingFolder folder_;
  Helpers helpers_;  // programs start where their keeper did
};

TEST_F(CommandRewards, SaysWhatTheProgramSays) {
  const auto program = reward();
  for (const int answer : {7, -3, 0}) {
    const Verdict verdict = ask(*program, "well", answer);
    EXPECT_EQ(verdict, answer);
    ASSERT_EQ(verdict.parts.size(), 1u);
    EXPECT_EQ(verdict.parts[0], (std::pair<std::string, double>("twofold", 2 * answer)));
  }
  EXPECT_EQ(pids().size(), 1u) << "one program for all";
  EXPECT_EQ(counts(*program), (std::map<std::string, double>{{"perf/reward_calls", 3}}));
  EXPECT_TRUE(counts(*program).empty()) << "of the next step";
}

TEST_F(CommandRewards, ManyThreadsEachGetTheirOwnAnswer) {
  for (const double in_flight : {1.0, 4.0}) {
    const auto program = reward({{"workers", 3}, {"in_flight", in_flight}});
    EXPECT_EQ(program->concurrency(), 3 * in_flight);
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    for (int t = 0; t < 12; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i) right += ask(*program, "well", 100 * t + i) == 100 * t + i;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, 240);
    EXPECT_EQ(counts(*program), (std::map<std::string, double>{{"perf/reward_calls", 240}}));
  }
  EXPECT_EQ(pids().size(), 6u);
}

TEST_F(CommandRewards, AnswersMayComeInAnyOrder) {
  write_file_atomic("reward.sh", R"sh(
while IFS= read -r first && IFS= read -r second; do
  for line in "$second" "$first"; do
    id=${line##*\"id\":}; answer=${line#*\"answer\":\"}
    echo "{\"id\":${id%\}},\"reward\":${answer%%\"*}}"
  done
done)sh");
  const auto program = reward({{"in_flight", 2}});
  Verdict first, second;
  std::thread other([&] { first = ask(*program, "well", 1); });
  second = ask(*program, "well", 2);
  other.join();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
}

/// Each defect costs its own response alone: the one after it is answered, by another program.
TEST_F(CommandRewards, EveryDefectIsCountedAndTheProgramStartedAgain) {
  const std::pair<const char*, const char*> defects[] = {
      {"die", "died"},     {"lie", "nonsense"},     {"flood", "nonsense"},
      {"nan", "nonsense"}, {"chatter", "nonsense"}, {"hang", "late"},
  };
  for (const auto& [deed, kind] : defects) {
    const auto program = reward({{"limit_seconds", 2}});
    EXPECT_EQ(ask(*program, "well"), 4) << deed;
    EXPECT_FALSE(ask(*program, deed).value) << deed;
    EXPECT_EQ(ask(*program, "well"), 4) << deed;
    const std::map<std::string, double> expected{
        {"perf/reward_calls", 3}, {std::string("perf/reward_") + kind, 1}, {"perf/reward_restarts", 1}};
    EXPECT_EQ(counts(*program), expected) << deed;
  }
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 300 << 10) << "KiB: the flood is not kept";
}

TEST_F(CommandRewards, AnAnswerBeforeTheQuestionIsNone) {
  write_file_atomic("reward.sh", R"sh(
for id in 0 1 2 3; do echo "{\"id\":$id,\"reward\":1}"; done
while read -r line; do :; done)sh");
  const auto program = reward();
  EXPECT_FALSE(ask(*program, "well").value);
  EXPECT_EQ(counts(*program).at("perf/reward_nonsense"), 1);
}

/// A second answer to the same question: a response that is asked about then may lose, none gets a wrong one.
TEST_F(CommandRewards, NothingIsAnsweredTwice) {
  const auto program = reward();
  EXPECT_EQ(ask(*program, "twice", 5), 5);
  while (counts(*program).empty() || pids().size() < 2) {
    const Verdict verdict = ask(*program, "twice", 6);
    EXPECT_TRUE(!verdict.value || verdict == 6);
  }
}

/// A program that names its parts after what it scores: said once.
TEST_F(CommandRewards, TooManyNamesAreSaid) {
  write_file_atomic("reward.sh", R"sh(
while IFS= read -r line; do
  id=${line##*\"id\":}; id=${id%\}}
  response=${line#*\"response\":\"}; response=${response%%\"*}
  echo "{\"id\":$id,\"reward\":1,\"parts\":{\"$response\":2}}"
done
)sh");
  const auto program = reward();
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < 70; ++i) EXPECT_EQ(ask(*program, "part " + std::to_string(i)), 1);
  const std::string said = ::testing::internal::GetCapturedStdout();
  const size_t first = said.find("named more than 64 parts");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("named more than", first + 1), std::string::npos) << said;
}

/// What a program was at when its keeper was killed is no failure of the program: nothing is trained without
/// an answer.
TEST_F(CommandRewards, CallsOfAKeeperThatIsKilledAreNotTakenForFailed) {
  const auto program = reward({{"workers", 2}});
  EXPECT_EQ(ask(*program, "well"), 4);
  std::thread killer([&] {
    while (!path_exists("deeds")) std::this_thread::yield();
    for (const pid_t keeper : keepers_among(all_processes()))
      if (std::stoi(state_and_parent(keeper).substr(2)) == ::getpid()) ::kill(keeper, SIGKILL);
  });
  EXPECT_THROW(ask(*program, "slow"), KeeperLost);
  killer.join();
  EXPECT_THROW(ask(*program, "well"), KeeperLost);
}

TEST_F(CommandRewards, AStepWaitsOnceForItsLimit) {
  const auto program = reward({{"limit_seconds", 3}});
  EXPECT_FALSE(ask(*program, "hang").value);
  EXPECT_FALSE(ask(*program, "slow").value) << "the step has waited";
  EXPECT_EQ(counts(*program).at("perf/reward_late"), 2);
  EXPECT_EQ(ask(*program, "slow"), 4) << "the next step may wait again";
}

TEST_F(CommandRewards, WhenNobodyAnswersTheRestOfTheStepIsNotAsked) {
  const auto program = reward({{"limit_seconds", 0.2}});
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(ask(*program, "hang").value);
  EXPECT_EQ(pids().size(), size_t{CommandPool::kMostInRow});
  EXPECT_EQ(counts(*program).at("perf/reward_late"), 20);
  EXPECT_EQ(ask(*program, "well"), 4) << "the next step";
}

TEST_F(CommandRewards, ALateCallDoesNotTakeItsNeighboursWithIt) {
  const auto program = reward({{"limit_seconds", 1}, {"in_flight", 2}});
  Verdict late, good;
  std::thread other([&] { late = ask(*program, "hang"); });
  while (pids().empty()) std::this_thread::yield();
  good = ask(*program, "well", 9);
  other.join();
  EXPECT_FALSE(late.value);
  // It waited behind the other one, so its own time may have run out as well.
  EXPECT_TRUE(good == 9 || counts(*program).at("perf/reward_late") == 2);
}

TEST_F(CommandRewards, OnError) {
  EXPECT_EQ(ask(*reward({}, "zero"), "die"), 0);
  expect_error(Exit::data, {"gave no reward", "sh reward.sh", "ended"}, "stop",
               [&] { ask(*reward({}, "stop"), "die"); });
  expect_error(Exit::usage, {"on_error", "exclude"}, "unknown", [&] { reward({}, "ignore"); });
  expect_error(Exit::usage, {"workers"}, "half", [&] { reward({{"workers", 1.5}}); });
  RewardFunctionConfig none = config();
  none.lists.clear();
  expect_error(Exit::usage, {"argv", "list of strings"}, "no argv", [&] { make_reward(none, &helpers_); });
  none.lists["argv"] = {"./no-such-program"};
  const auto missing = make_reward(none, &helpers_);
  expect_error(Exit::usage, {"no-such-program", "No such file"}, "missing", [&] { ask(*missing, "well"); });
}

TEST_F(CommandRewards, AResponseWithoutARewardHasNoSums) {
  const RewardSet set({{config(), {.name = "exact", .weight = 0.5}}}, &helpers_);
  Trajectory t;
  t.answer = "4";
  t.response.text = "die";
  set.score(t, Json::object());
  EXPECT_TRUE(t.excluded);
  EXPECT_EQ(t.raw_reward, 0);
  EXPECT_EQ(t.reward_parts, (std::vector<std::pair<std::string, double>>{{"exact", 0}}));
  t.response.text = "4";
  set.score(t, Json::object());
  EXPECT_FALSE(t.excluded);
  EXPECT_EQ(t.raw_reward, 4.5);
  EXPECT_EQ(t.reward_parts, (std::vector<std::pair<std::string, double>>{
                                {"command", 4}, {"command/twofold", 8}, {"exact", 1}}));
}

/// Programs, what they started, and what left their session.
TEST_F(CommandRewards, NobodyIsLeftBehindWhenTheRunIsKilled) {
  const pid_t run = ::fork();
  if (run == 0) {
    Helpers helpers;
    const auto program = make_reward(config({{"workers", 3}}), &helpers);
    std::vector<std::thread> threads;
    for (const char* deed : {"hang", "daemon", "daemon"})
      threads.emplace_back([&, deed] { ask(*program, deed); });
    ::pause();
  }
  while (pids().size() < 5) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::vector<pid_t> programs = pids();
  ::kill(run, SIGKILL);
  ::waitpid(run, nullptr, 0);
  EXPECT_TRUE(gone(programs));
}

/// As of `timeout 60 python3 ...` in a program: in a group of its own.
TEST_F(CommandRewards, WhatALateProgramHasStartedEndsWithIt) {
  const auto program = reward({{"limit_seconds", 0.2}});
  EXPECT_FALSE(ask(*program, "daemon").value);
  EXPECT_TRUE(gone(pids()));
  EXPECT_EQ(ask(*program, "well"), 4);
}

TEST_F(CommandRewards, NobodyIsLeftBehindAtTheEnd) {
  {
    Helpers helpers;
    const auto program = make_reward(config({{"limit_seconds", 0.2}}), &helpers);
    EXPECT_EQ(ask(*program, "well"), 4);
    // A program that is ended before what it starts has begun, as on a busy machine, is asked again.
    size_t programs = 0;
    do {
      ++programs;
      EXPECT_FALSE(ask(*program, "daemon").value);
    } while (pids().size() == programs);
    EXPECT_EQ(ask(*program, "well"), 4);
    EXPECT_EQ(pids().size(), programs + 2) << "the daemon, and one program more";
  }
  EXPECT_TRUE(gone(pids()));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
