// Services: sessions over pipes, and workers that die, mix up, flood, drip, hang.

#include <algorithm>

#include "src/core/check.h"
#include "tests/agents/programs/rig.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

/// A service of the shell: `on_start` and `on_answer` see $id, and $line.
HarnessConfig service(const std::string& on_start, const std::string& on_answer = ":",
                      const std::string& on_stop = ":") {
  HarnessConfig config = shell_program(
      "say() { printf '%s\\n' \"$1\"; }; n=0\n"
      "while read -r line; do id=${line#*\\\"id\\\":\\\"}; id=${id%%\\\"*}\n"
      "case $line in *'\"start\":'*) n=$((n+1)); " +
          on_start + ";; *'\"stop\":'*) " + on_stop + ";; *) " + on_answer + ";; esac; done",
      "service");
  config.in_flight = 4;
  return config;
}

constexpr const char* kDone = "say \"{\\\"id\\\":\\\"$id\\\",\\\"reward\\\":1,\\\"done\\\":true}\"";
constexpr const char* kAsk = "say \"{\\\"id\\\":\\\"$id\\\",\\\"observation\\\":\\\"look $id\\\"}\"";

Json answer_of(const HarnessTurn& turn, const std::string& text) {
  return {{"turn", turn.turn}, {"text", text}, {"tool_calls", Json::array()}, {"finish", "stop"}};
}

TEST(Services, GamesOverPipes) {
  const ProgramPlace place;
  constexpr size_t kSessions = 40;
  const TempDir out;
  {
    Helpers helpers;
    HarnessConfig config =
        place.marked(service(std::string("say \"$line\" >> $OUT/starts;") + kAsk,
                             "case $line in *'\"turn\":0'*) say "
                             "\"{\\\"id\\\":\\\"$id\\\",\\\"messages\\\":[{\\\"role\\\":\\\"tool\\\"}]}\";;"
                             " *'\"text\":\"right\"'*) say "
                             "\"{\\\"id\\\":\\\"$id\\\",\\\"reward\\\":0.5,\\\"parts\\\":{\\\"t\\\":2},"
                             "\\\"done\\\":true}\";; *) say "
                             "\"{\\\"id\\\":\\\"$id\\\",\\\"reward\\\":null,\\\"done\\\":true}\";; esac"));
    config.env["OUT"] = std::filesystem::absolute(out.path());
    config.workers = 2;
    Harness harness(helpers, config);
    for (size_t i = 0; i < kSessions; ++i) harness.start(i, start_of(i));
    int64_t most = 0;
    const auto ends = play(harness, kSessions, [&](const HarnessTurn& turn) {
      most = std::max(most, harness.running());
      const Json looked =
          Json::array({{{"role", "user"}, {"content", "look s" + std::to_string(turn.session)}}});
      EXPECT_EQ(turn.messages, turn.turn == 0 ? looked : Json::array({{{"role", "tool"}}}));
      harness.answer(turn.session, answer_of(turn, turn.session % 2 ? "right" : "wrong"));
    });
    for (const auto& [i, end] : ends) {
      EXPECT_EQ(end.end.reason, EndReason::done) << end.why;
      EXPECT_EQ(end.end.reward, i % 2 ? std::optional(0.5) : std::nullopt);
      EXPECT_EQ(end.end.parts.size(), i % 2);
    }
    EXPECT_LE(most, 8);
    EXPECT_EQ(harness.end_step().restarts, 0);
  }
  std::stringstream starts(file_text(out / "starts"));
  std::string line;
  ASSERT_TRUE(std::getline(starts, line));
  const Json start = Json::parse(line);
  EXPECT_EQ(start["start"]["reward_key"], "reward key");
  EXPECT_EQ(start["start"]["id"], start["id"]);
  EXPECT_EQ(start["start"]["model"], "policy");
  place.expect_nothing_left();
}

TEST(Services, ADeathEndsItsSessionsAndItStartsAgain) {
  const ProgramPlace place;
  Helpers helpers;
  // The first worker dies with the third session; no worker of later does.
  const TempDir out;
  HarnessConfig config = place.marked(service(
      std::string(
          "if [ $n = 3 ] && [ ! -e $OUT/died ]; then : > $OUT/died; echo last words >&2; exit 9; fi; if [ -e "
          "$OUT/died ]; then ") +
      kDone + "; fi"));
  config.env["OUT"] = std::filesystem::absolute(out.path());
  config.in_flight = 3;
  Harness harness(helpers, config);
  for (size_t i = 0; i < 6; ++i) harness.start(i, start_of(i));
  for (const auto& [i, end] : play(harness, 6)) {
    EXPECT_EQ(end.end.reason, i < 3 ? EndReason::died : EndReason::done) << i << end.why;
    EXPECT_EQ(end.why, i < 3 ? "it exited with 9: last words" : "");
  }
  EXPECT_EQ(harness.end_step().restarts, 1);
}

/// What one session says wrong ends that one; what is nobody's ends all of the worker.
TEST(Services, NonsenseIsHeldAgainstWhoSaidIt) {
  const struct {
    const char* says;  // at the start of s0
    bool all;          // sessions of its worker end so
    const char* words;
  } cases[] = {
      {"say \"{\\\"id\\\":\\\"$id\\\"}\"", false, "neither an observation"},
      {"say \"{\\\"id\\\":\\\"$id\\\",\\\"observation\\\":7}\"", false, "no text"},
      {"say \"{\\\"id\\\":\\\"$id\\\",\\\"messages\\\":[1]}\"", false, "no list of objects"},
      {"say \"{\\\"id\\\":\\\"$id\\\",\\\"reward\\\":\\\"x\\\",\\\"done\\\":true}\"", false,
       "no finite number"},
      {"say \"{\\\"id\\\":\\\"$id\\\",\\\"observation\\\":\\\"a\\\"}\"; say "
       "\"{\\\"id\\\":\\\"$id\\\",\\\"observation"
       "\\\":\\\"b\\\"}\"",
       false, "a turn before the answer"},
      {"say '{\"id\":\"s7\",\"observation\":\"x\"}'", true, "talks nonsense: \"{\\\"id\\\":\\\"s7"},
      {"say '{\"id\":0,\"observation\":\"x\"}'", true, "talks nonsense"},
      {"say '{\"observation\":\"x\"}'", true, "talks nonsense"},
      {"say 'print for debugging \033[2J'", true, "talks nonsense: \"print for debugging \\u001b[2J\""},
      {"head -c 5000000 /dev/zero | tr '\\0' '{'; echo", true, "a line of more than 4194304 bytes"},
  };
  const ProgramPlace place;
  Helpers helpers;
  for (const auto& wrong : cases) {
    SCOPED_TRACE(wrong.says);
    Harness harness(
        helpers, place.marked(service(std::string("if [ $n = 2 ]; then id=s0; ") + wrong.says + "; fi", ":",
                                      std::string("id=s1; ") + kDone)));
    harness.start(0, start_of(0));
    harness.start(1, start_of(1));
    const auto ends = play(harness, 2, [](const HarnessTurn&) {});
    EXPECT_EQ(ends.at(0).end.reason, EndReason::nonsense);
    EXPECT_NE(ends.at(0).why.find(wrong.words), std::string::npos) << ends.at(0).why;
    EXPECT_EQ(ends.at(1).end.reason, wrong.all ? EndReason::nonsense : EndReason::done) << ends.at(1).why;
  }
}

TEST(Services, WhatIsSaidOfAnEndedSessionIsLate) {
  const ProgramPlace place;
  Helpers helpers;
  Harness harness(helpers, place.marked(service(std::string(kDone) + ";" + kDone + ";" + kAsk)));
  for (size_t i = 0; i < 10; ++i) harness.start(i, start_of(i));
  for (const auto& [i, end] : play(harness, 10)) EXPECT_EQ(end.end.reason, EndReason::done) << i << end.why;
  EXPECT_EQ(harness.end_step().restarts, 0);
}

TEST(Services, ARetryMayHaveTheSameId) {
  const ProgramPlace place;
  Helpers helpers;
  HarnessConfig config = place.marked(
      service(std::string("if [ $n = 1 ]; then say \"{\\\"id\\\":\\\"$id\\\"}\"; else ") + kDone + "; fi"));
  config.retries = 1;
  Harness harness(helpers, config);
  harness.start(1, start_of(1));
  EXPECT_TRUE(play(harness, 1).at(1).again);
  harness.start(1, start_of(1));
  EXPECT_EQ(play(harness, 1).at(1).end.reason, EndReason::done);
  EXPECT_EQ(harness.end_step().retries, 1);
}

TEST(Services, LinesMayDrip) {
  const ProgramPlace place;
  Helpers helpers;
  Harness harness(helpers,
                  place.marked(service("printf '{\"id\"'; sleep 0.02; printf ':\"%s\",\"rew' $id; sleep "
                                       "0.02; printf 'ard\":1,\"done\":true}'; sleep 0.02; echo")));
  for (size_t i = 0; i < 3; ++i) harness.start(i, start_of(i));
  for (const auto& [i, end] : play(harness, 3)) EXPECT_EQ(end.end.reward, 1.0) << i << end.why;
}

TEST(Services, AWorkerThatHangsIsGivenUp) {
  const ProgramPlace place;
  Helpers helpers;
  HarnessConfig config = place.marked(shell_program("exec sleep 300", "service"));
  config.in_flight = 2;
  config.limit_seconds = 0.3;
  Harness harness(helpers, config);
  for (size_t i = 0; i < 4; ++i) harness.start(i, start_of(i));
  for (const auto& [i, end] : play(harness, 4)) {
    EXPECT_EQ(end.end.reward, std::nullopt);
    EXPECT_TRUE(end.end.reason == EndReason::late || i > 1) << i << end.why;  // or it was given up under them
  }
  EXPECT_GE(harness.end_step().restarts, 1);
}

TEST(Services, OneThatNeverRunsHoldsNothingUp) {
  const ProgramPlace place;
  Helpers helpers;
  HarnessConfig config = place.marked(shell_program("echo no such game >&2; exit 2", "service"));
  config.in_flight = 1;
  Harness harness(helpers, config);
  for (size_t i = 0; i < 100; ++i) harness.start(i, start_of(i));
  const Stopwatch watch;
  const auto ends = play(harness, 100);
  EXPECT_LT(watch.seconds(), 20);
  for (const auto& [i, end] : ends) EXPECT_EQ(end.end.reason, EndReason::died);
  EXPECT_NE(ends.at(99).why.find("times in a row; the last time it exited with 2: no such game"),
            std::string::npos)
      << ends.at(99).why;
}

TEST(Services, StopsAndRefusalsAreSaidToIt) {
  const ProgramPlace place;
  const TempDir out;
  Helpers helpers;
  HarnessConfig config = place.marked(service(kAsk, kDone, "say \"$line\" >> $OUT/stops"));
  config.env["OUT"] = std::filesystem::absolute(out.path());
  Harness harness(helpers, config);
  for (size_t i = 0; i < 3; ++i) harness.start(i, start_of(i));
  const auto ends = play(harness, 2, [&](const HarnessTurn& turn) {
    if (turn.session == 0) return harness.stop(0, "limit");
    if (turn.session == 1) return harness.refuse(1, "the template refuses it");
    harness.answer(2, answer_of(turn, "x"));
  });
  EXPECT_EQ(ends.at(1).end.reason, EndReason::nonsense);
  EXPECT_EQ(ends.at(1).why, "the template refuses it");
  EXPECT_EQ(ends.at(2).end.reason, EndReason::done);
  const std::string stops = file_text(out / "stops");
  EXPECT_NE(stops.find("{\"id\":\"s0\",\"stop\":\"limit\"}\n"), std::string::npos) << stops;
  EXPECT_NE(stops.find("{\"id\":\"s1\",\"stop\":\"the template refuses it\"}\n"), std::string::npos) << stops;
}

TEST(Services, LinesChooseByTheirEnvironment) {
  HarnessConfig one, two;
  one.name = "math";
  two.name = "games";
  const std::vector<HarnessConfig> both{one, two};
  EXPECT_EQ(chosen_harness(both, {{"environment", "games"}}, "x:1"), 1u);
  EXPECT_EQ(chosen_harness({one}, {{"question", 1}}, "x:1"), 0u);
  EXPECT_EQ(chosen_harness({HarnessConfig{}}, {{"environment", "anything"}}, "x:1"), 0u);
  expect_error(Exit::data, {"x:1", "did you mean `games`", "math, games"}, "slip", [&] {
    chosen_harness(both, {{"environment", "game"}}, "x:1");
  });
  expect_error(Exit::data, {"several programs"}, "none",
               [&] { chosen_harness(both, Json::object(), "x:1"); });
  expect_error(Exit::data, {"a number"}, "kind", [&] { chosen_harness(both, {{"environment", 1}}, "x:1"); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
