// Programs beside a process and their keeper: what they get of the launcher (nothing), what a terminal gets
// of their stderr, and that neither a program that does not die nor a keeper that was killed or stopped holds
// the process up.

#include "src/core/helpers/helpers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "src/core/stopwatch.h"

namespace temper {
namespace {

/// What comes out of a pipe until its end, or until it has `until`.
std::string read_all(int descriptor, const std::string& until = "") {
  std::string text;
  for (const Stopwatch watch; watch.seconds() < 20;) {
    pollfd wait{descriptor, POLLIN, 0};
    if (::poll(&wait, 1, 100) <= 0) continue;
    char bytes[4096];
    const ssize_t got = ::read(descriptor, bytes, sizeof bytes);
    if (got == 0) break;
    if (got > 0) text.append(bytes, static_cast<size_t>(got));
    if (!until.empty() && text.find(until) != std::string::npos) break;
  }
  return text;
}

/// The only child of this process.
pid_t keeper() {
  std::ifstream file("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  pid_t found = -1;
  file >> found;
  return found;
}

TEST(Helpers, ProgramsDoNotSeeTheLauncher) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_MCA_ess", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_SIZE",
                           "PRTE_MCA_x", "ORTE_x", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEPID"})
    ::setenv(name, "launcher", 1);
  ::setenv("SLURM_JOB_ID", "of the job", 1);
  Helpers helpers;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    EXPECT_STREQ(std::getenv(name), "launcher") << "this process keeps it";
    ::unsetenv(name);
  }
  HelperProgram program = helpers.start({"env"});
  const std::string environment = read_all(program.output);
  EXPECT_EQ(environment.find("=launcher"), std::string::npos) << environment;
  EXPECT_NE(environment.find("SLURM_JOB_ID=of the job"), std::string::npos) << environment;
  EXPECT_NE(environment.find("PATH="), std::string::npos) << environment;
  helpers.end(program);
}

TEST(Helpers, ATerminalFindsNothingToObeyInStderr) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  std::string seen;
  {
    Helpers helpers;
    ::dup2(before, STDERR_FILENO);
    ::close(ends[1]);
    HelperProgram program = helpers.start(
        {"sh", "-c", R"(printf 'a\033[2Jb\007\n\tgr\303\274n\r\nbar 1\rbar 2\r' >&2; printf 'no end' >&2)"});
    seen = read_all(ends[0], "no end\n");
    helpers.end(program);
    HelperProgram flood =
        helpers.start({"sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' '\\033' >&2; echo"});
    EXPECT_EQ(read_all(ends[0], "\\x1b\\x1b").find('\033'), std::string::npos);
    HelperProgram other = helpers.start({"echo", "beside it"});  // nothing waits for a reader of stderr
    EXPECT_EQ(read_all(other.output), "beside it\n");
    helpers.end(other);
    helpers.end(flood);
  }
  EXPECT_EQ(seen, "a\\x1b[2Jb\\x07\n\tgr\303\274n\nbar 1\nbar 2\nno end\n");
  ::close(ends[0]);
  ::close(before);
}

TEST(Helpers, TheSameTextOnStderrIsSaidOnceAndCounted) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  {
    Helpers helpers;
    ::dup2(before, STDERR_FILENO);
    ::close(ends[1]);
    for (int i = 0; i < 13; ++i) {
      const char* last = i == 5 ? "KeyError: 'b'" : "KeyError: 'a'";
      HelperProgram program = helpers.start(
          {"sh", "-c", fmt::format("printf 'Traceback:\n  line 1\n%s\n' \"{}\" >&2; echo", last)});
      EXPECT_EQ(read_all(program.output), "\n");
      helpers.end(program);
    }
  }
  const std::string trace = "Traceback:\n  line 1\nKeyError: ";
  const std::string count = "temper: a program's text on stderr came {} times, it is said once: KeyError: 'a'\n";
  EXPECT_EQ(read_all(ends[0]), trace + "'a'\n" + trace + "'b'\n" + fmt::format(fmt::runtime(count), 10) +
                                   fmt::format(fmt::runtime(count), 12));
  ::close(ends[0]);
  ::close(before);
}

TEST(Helpers, AProgramThatDoesNotDieIsNotWaitedFor) {
  Helpers helpers;
  HelperProgram program = helpers.start({"sleep", "1000"});
  const pid_t pid = program.pid;
  // As in a disk access without end: what another process traces stays, killed, until that one looks.
  if (::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) != 0) GTEST_SKIP() << "ptrace is not allowed here";
  const Stopwatch watch;
  helpers.end(program);
  EXPECT_LT(watch.seconds(), 3);
  HelperProgram next = helpers.start({"echo", "next"});
  EXPECT_EQ(read_all(next.output), "next\n");
  helpers.end(next);
  while (::waitpid(pid, nullptr, __WALL) < 0 && errno == EINTR) {
  }
}

TEST(Helpers, AKilledKeeperIsAnErrorOfTheNextStartAlone) {
  Helpers helpers;
  HelperProgram program = helpers.start({"sleep", "1000"});
  ::kill(keeper(), SIGKILL);
  EXPECT_EQ(read_all(program.output), "") << "its programs are with it";
  helpers.end(program);  // does not throw
  EXPECT_THROW(helpers.start({"true"}), KeeperLost);
}

TEST(Helpers, AStoppedKeeperIsKilledAtTheEnd) {
  const Stopwatch watch;
  {
    Helpers helpers;
    ::kill(keeper(), SIGSTOP);
  }
  EXPECT_LT(watch.seconds(), 20);
  EXPECT_EQ(keeper(), -1);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
