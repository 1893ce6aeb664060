// Episodes: what a program gets, how it can end, and that nothing of it stays.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>

#include "src/core/check.h"
#include "tests/agents/programs/rig.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

/// Runs what the session's key says.
constexpr const char* kObey = "eval \"$OPENAI_API_KEY\"";

TEST(Episodes, AProgramHasItsLineItsVariablesAndAFolder) {
  const ProgramPlace place;
  ::setenv("OMPI_COMM_WORLD_RANK", "3", 1);
  ::setenv("SECRET_TOKEN", "of the run", 1);
  ::setenv("PASSED_ON", "by name", 1);
  const TempDir seen;
  {
    Helpers helpers;
    HarnessConfig config =
        place.marked(shell_program("cat > in; cp in $OUT/in; env > $OUT/env; pwd > $OUT/pwd; ls -A > "
                                   "$OUT/files; ls /proc/$$/fd > $OUT/fds;"
                                   "mkdir -p deep/er; chmod a-w deep; echo free text; echo '{\"reward\": "
                                   "1.5, \"parts\": {\"a\": -2}}'"));
    config.env["OUT"] = std::filesystem::absolute(std::string(seen / ""));
    config.env["OPENAI_MODEL"] = "mine";
    config.env["NAMED"] = "$PASSED_ON";
    Harness harness(helpers, config);
    harness.start(7, start_of(7));
    const HarnessEnd end = play(harness, 1).at(7);
    EXPECT_EQ(end.end.reason, EndReason::done) << end.why;
    EXPECT_EQ(end.end.reward, 1.5);
    EXPECT_EQ(end.end.parts, (std::vector<std::pair<std::string, double>>{{"a", -2}}));
  }
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  const Json line = Json::parse(file_text(seen / "in"));
  EXPECT_EQ(line, (Json{{"id", "s7"},
                        {"record", {{"question", "1+1"}}},
                        {"seed", 1007},
                        {"base_url", "http://127.0.0.1:1/v1"},
                        {"anthropic_base_url", "http://127.0.0.1:1"},
                        {"api_key", "key"},
                        {"model", "policy"}}));
  const std::string env = "\n" + file_text(seen / "env");
  for (const char* has :
       {"\nOPENAI_BASE_URL=http://127.0.0.1:1/v1\n", "\nANTHROPIC_BASE_URL=http://127.0.0.1:1\n",
        "\nOPENAI_API_KEY=key\n", "\nANTHROPIC_API_KEY=key\n", "\nANTHROPIC_MODEL=policy\n",
        "\nOPENAI_MODEL=mine\n", "\nANTHROPIC_SMALL_FAST_MODEL=policy-untrained\n",
        "\nANTHROPIC_DEFAULT_HAIKU_MODEL=policy-untrained\n", "\nNAMED=by name\n", "\nPATH="})
    EXPECT_NE(env.find(has), std::string::npos) << has << env;
  for (const char* lacks : {"OMPI_", "SECRET", "reward key", "\nPASSED_ON="})
    EXPECT_EQ(env.find(lacks), std::string::npos) << lacks << env;
  const std::string folder = file_text(seen / "pwd");
  EXPECT_NE(env.find("\nTMPDIR=" + folder), std::string::npos);
  EXPECT_NE(folder.find("temper-program-"), std::string::npos);
  EXPECT_EQ(file_text(seen / "files"), "in\n");
  std::stringstream descriptors(file_text(seen / "fds"));
  for (int descriptor = 0; descriptors >> descriptor;)
    EXPECT_TRUE(descriptor <= 2 || descriptor == 10) << descriptor << " (10 is the shell's own)";
  place.expect_nothing_left();
}

struct Ending {
  const char* script;
  EndReason reason;
  std::optional<double> reward;
  const char* words;  // of `why`
};

const Ending kEndings[] = {
    {"echo '{\"reward\": 2}'", EndReason::done, 2, ""},
    {"printf '{\"reward\": 3}'", EndReason::done, 3, ""},
    {"echo '{\"reward\": 9}'; echo '{\"reward\": 4, \"parts\": null}'; echo", EndReason::done, 4, ""},
    {"true", EndReason::done, {}, ""},
    {"echo hello", EndReason::done, {}, ""},
    {"echo '{\"reward\": null}'", EndReason::done, {}, ""},
    {"exec <&- >&- 2>&-; sleep 0.05", EndReason::done, {}, ""},
    {"sleep 0.3; exec sh -c 'echo \"{\\\"reward\\\": 5}\"'", EndReason::done, 5, ""},
    {"head -c 5000000 /dev/zero | tr '\\0' a; echo; echo '{\"reward\": 6}'", EndReason::done, 6, ""},
    {"head -c 3000000 /dev/zero >&2; echo '{\"reward\": 7}'", EndReason::done, 7, ""},
    {"(setsid sh -c \"trap '' TERM HUP; sleep 300\" &); echo '{\"reward\": 8}'", EndReason::done, 8, ""},
    {"sleep 300 & sleep 300 | sleep 300 & echo '{\"reward\": 9}'", EndReason::done, 9, ""},
    {"echo '{\"reward\": 1}'; exit 3", EndReason::died, {}, "it exited with 3"},
    {"kill -9 $$", EndReason::died, {}, "signal 9 (Killed) ended it"},
    {"printf 'a\\nTraceback\\nError: \\033[2J' >&2; exit 1",
     EndReason::died,
     {},
     "a\nTraceback\nError: \\x1b[2J"},
    {"echo '{\"reward\": NaN}'", EndReason::nonsense, {}, "no line of JSON"},
    {"echo '{\"reward\": 1e999}'", EndReason::nonsense, {}, "no line of JSON"},
    {"echo '{\"reward\": \"high\"}'", EndReason::nonsense, {}, "no finite number"},
    {"echo '{\"reward\": 1, \"parts\": {\"a\": \"b\"}}'",
     EndReason::nonsense,
     {},
     "a part is no finite number"},
    {"printf '{\"reward\": '; head -c 200000 /dev/zero | tr '\\0' '['",
     EndReason::nonsense,
     {},
     "no line of JSON"},
    {"printf '{\"reward\": \"'; head -c 5000000 /dev/zero | tr '\\0' a",
     EndReason::nonsense,
     {},
     "more than 4194304"},
    {"sleep 300", EndReason::late, {}, "no end within 2"},
    {"trap '' TERM; sleep 300 & sleep 300; sleep 300", EndReason::late, {}, "no end within 2"},
    {"yes '{\"reward\": 1}'", EndReason::late, {}, "no end within 2"},
    {"setsid sleep 300 & exec 1>&- 0<&-; sleep 300", EndReason::late, {}, "no end within 2"},
};

TEST(Episodes, EndsHaveTheirCauses) {
  const ProgramPlace place;
  const size_t count = std::size(kEndings);
  {
    Helpers helpers;
    HarnessConfig config = place.marked(shell_program(kObey));
    config.limit_seconds = 2;
    config.in_flight = static_cast<int64_t>(count);
    Harness harness(helpers, config);
    for (size_t i = 0; i < count; ++i) harness.start(i, start_of(i, kEndings[i].script));
    const auto ends = play(harness, count);
    for (const auto& [i, end] : ends) {
      const Ending& wanted = kEndings[i];
      EXPECT_EQ(end_reason_name(end.end.reason), end_reason_name(wanted.reason)) << wanted.script << end.why;
      EXPECT_EQ(end.end.reward, wanted.reward) << wanted.script;
      EXPECT_NE(end.why.find(wanted.words), std::string::npos) << wanted.script << "\n" << end.why;
      EXPECT_FALSE(end.again);
    }
    const HarnessCounts counts = harness.end_step();
    EXPECT_EQ(counts.ended[static_cast<size_t>(EndReason::late)], 4);
    EXPECT_EQ(counts.ended[static_cast<size_t>(EndReason::died)], 3);
    EXPECT_EQ(harness.running(), 0);
    place.expect_nothing_left();  // while the keeper lives
  }
}

/// More than pipes hold goes as the program takes it; one that takes nothing is not waited for.
TEST(Episodes, LongLinesAreReadAsTheyAreWanted) {
  const ProgramPlace place;
  Helpers helpers;
  Harness harness(helpers, place.marked(shell_program(kObey)));
  HarnessStart start = start_of(1, "sleep 0.1; bytes=$(cat | wc -c); echo \"{\\\"reward\\\": $bytes}\"");
  start.record = {{"question", std::string(2'000'000, 'x')}};
  harness.start(1, start);
  start.api_key = "echo '{\"reward\": 1}'";
  harness.start(2, start);
  const auto ends = play(harness, 2);
  EXPECT_GT(ends.at(1).end.reward, 2'000'000);
  EXPECT_EQ(ends.at(2).end.reward, 1);
}

/// Where no descriptors are left a session fails, and later ones are played.
TEST(Episodes, ItRunsOutOfDescriptors) {
  const ProgramPlace place;
  Helpers helpers;
  Harness harness(helpers, place.marked(shell_program("echo '{\"reward\": 1}'")));
  rlimit before{}, few{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  few = before;
  few.rlim_cur = 128;
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::vector<int> taken;
  for (int descriptor = 0; (descriptor = ::dup(STDERR_FILENO)) >= 0;) taken.push_back(descriptor);
  ::close(taken.back());
  taken.pop_back();
  harness.start(1, start_of(1));
  EXPECT_TRUE(harness.wait(20));
  for (const int descriptor : taken) ::close(descriptor);
  ::setrlimit(RLIMIT_NOFILE, &before);
  const HarnessEnd end = play(harness, 1).at(1);
  EXPECT_EQ(end.end.reason, EndReason::no_start);
  EXPECT_EQ(end.why, "Too many open files");
  harness.start(2, start_of(2));
  EXPECT_EQ(play(harness, 1).at(2).end.reward, 1);
  place.expect_nothing_left();
}

TEST(Episodes, TwoHundredAtEightAtOnce) {
  const ProgramPlace place;
  constexpr size_t kSessions = 200;
  {
    Helpers helpers;
    HarnessConfig config = place.marked(shell_program(
        "read -r line; seed=${line#*\\\"seed\\\":}; echo \"{\\\"reward\\\": ${seed%%,*}}\"; : > $OUT/$$"));
    config.in_flight = 8;
    const TempDir out;
    config.env["OUT"] = std::filesystem::absolute(std::string(out / ""));
    Harness harness(helpers, config);
    for (size_t i = 0; i < kSessions; ++i) harness.start(i, start_of(i));
    int64_t most = 0;
    std::map<uint64_t, HarnessEnd> ends;
    for (const Stopwatch watch; ends.size() < kSessions && watch.seconds() < 60;) {
      harness.wait(0.5);
      most = std::max(most, harness.running());
      for (HarnessEnd& end : harness.take_ended()) ends[end.session] = std::move(end);
    }
    EXPECT_LE(most, 8);
    for (size_t i = 0; i < kSessions; ++i)
      EXPECT_EQ(ends[i].end.reward, 1000.0 + static_cast<double>(i)) << ends[i].why;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(std::string(out / "")), {}), 200);
    EXPECT_GT(harness.end_step().waited_seconds, 0);
  }
  place.expect_nothing_left();
}

TEST(Episodes, RetriesAreTheLoopsToMake) {
  const ProgramPlace place;
  Helpers helpers;
  const TempDir out;
  HarnessConfig config = place.marked(shell_program("echo x >> $OUT/tries; [ $(wc -l < $OUT/tries) = 3 ]"));
  config.env["OUT"] = std::filesystem::absolute(std::string(out / ""));
  config.retries = 2;
  config.on_error = "stop";
  Harness harness(helpers, config);
  for (int i = 0; i < 3; ++i) {
    harness.start(1, start_of(1));
    const HarnessEnd end = play(harness, 1).at(1);
    EXPECT_EQ(end.again, i < 2);
    EXPECT_EQ(end.end.reason, i < 2 ? EndReason::died : EndReason::done);
  }
  EXPECT_EQ(harness.end_step().retries, 2);
}

TEST(Episodes, FailuresCountAsTheConfigSays) {
  const ProgramPlace place;
  Helpers helpers;
  HarnessConfig config = place.marked(shell_program("exit 1"));
  config.on_error = "zero";
  {
    Harness harness(helpers, config);
    harness.start(1, start_of(1));
    EXPECT_EQ(play(harness, 1).at(1).end.reward, 0.0);
  }
  config.on_error = "stop";
  Harness harness(helpers, config);
  harness.start(1, start_of(1));
  EXPECT_TRUE(harness.wait(20));
  expect_error(Exit::data, {"died: it exited with 1"}, "", [&] { harness.take_ended(); });
}

TEST(Episodes, WhatIsStoppedIsNotHeardOfAgain) {
  const ProgramPlace place;
  Helpers helpers;
  HarnessConfig config = place.marked(shell_program(kObey));
  config.in_flight = 1;
  Harness harness(helpers, config);
  harness.start(1, start_of(1, "sleep 300"));
  harness.start(2, start_of(2, "sleep 300"));
  harness.start(3, start_of(3, "echo '{\"reward\": 1}'"));
  harness.stop(2, "limit");
  for (const Stopwatch watch; place.processes() == 0 && watch.seconds() < 10;) ::usleep(1000);
  harness.stop(1, "limit");
  EXPECT_EQ(play(harness, 1).begin()->first, 3u);
  EXPECT_EQ(harness.waiting() + harness.running(), 0);
  place.expect_nothing_left();
}

TEST(Episodes, WhatCannotStartIsSaid) {
  const ProgramPlace place;
  Helpers helpers;
  HarnessConfig config = place.marked(shell_program(""));
  config.argv = {"no-such-program"};
  expect_error(Exit::usage, {"no-such-program"}, "", [&] { Harness(helpers, config); });
  config.argv = {"sh"};
  config.env["X"] = "$NOT_SET_ANYWHERE";
  expect_error(Exit::usage, {"NOT_SET_ANYWHERE"}, "", [&] { Harness(helpers, config); });
  config.env.erase("X");
  const TempDir folder;
  const std::string program = folder / "agent.sh";
  std::ofstream(program) << "#!/bin/sh\necho '{\"reward\": 1}'\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  config.argv = {std::filesystem::absolute(program)};
  Harness harness(helpers, config);
  harness.start(1, start_of(1));
  EXPECT_EQ(play(harness, 1).at(1).end.reward, 1.0);
  std::filesystem::remove(program);
  harness.start(2, start_of(2));
  const HarnessEnd end = play(harness, 1).at(2);
  EXPECT_EQ(end.end.reason, EndReason::no_start);
  EXPECT_EQ(end.why, "No such file or directory");
  place.expect_nothing_left();
}

TEST(Episodes, WordsThatNameFilesAreFoundFromTheirFolder) {
  const ProgramPlace place;
  Helpers helpers;
  const std::filesystem::path here = std::filesystem::current_path();
  const TempDir folder;
  std::ofstream(folder / "agent.sh") << "echo '{\"reward\": 4}'\n";
  std::filesystem::current_path(std::string(folder / ""));
  HarnessConfig config = place.marked(shell_program(""));
  config.argv = {"sh", "agent.sh"};
  Harness harness(helpers, config);
  std::filesystem::current_path(here);
  harness.start(1, start_of(1));
  EXPECT_EQ(play(harness, 1).at(1).end.reward, 4.0);
}

/// The keeper outlives a process that is killed, and leaves nothing.
TEST(Episodes, AKilledProcessLeavesNothing) {
  const ProgramPlace place;
  const pid_t child = ::fork();
  if (child == 0) {
    Helpers helpers;
    Harness harness(helpers, place.marked(shell_program("(setsid sleep 300 &) ; sleep 300")));
    for (int i = 0; i < 3; ++i) harness.start(static_cast<uint64_t>(i), start_of(1));
    while (place.processes() < 9) ::usleep(5000);  // a shell and two that sleep, of each
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  place.expect_nothing_left();
}

TEST(Episodes, AKilledKeeperIsSaidAndLeavesNothing) {
  const ProgramPlace place;
  Helpers helpers;
  Harness harness(helpers, place.marked(shell_program("(setsid sleep 300 &) ; sleep 300")));
  harness.start(1, start_of(1));
  for (const Stopwatch watch; place.processes() < 3 && watch.seconds() < 10;) ::usleep(1000);
  std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  pid_t keeper = 0;
  children >> keeper;
  ::kill(keeper, SIGKILL);
  EXPECT_THROW(play(harness, 1), KeeperLost);  // it would else count as a program that died
  place.expect_nothing_left();
  harness.start(2, start_of(2));
  EXPECT_TRUE(harness.wait(20));
  EXPECT_THROW(harness.take_ended(), KeeperLost);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
