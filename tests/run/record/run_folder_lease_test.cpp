// A run folder on a file system without locks: still one owner at a time, and a start is never refused for
// the file system's sake.

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "src/core/file.h"
#include "src/core/process/host.h"
#include "src/core/stopwatch.h"
#include "src/run/record/run_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace {
int lock_error = ENOLCK;
}  // namespace

/// It stands in the place of the system's.
extern "C" int flock(int, int) noexcept {
  errno = lock_error;
  return -1;
}

namespace temper {
namespace {

constexpr Lease::Seconds kFast{.renewal = 0.05, .stale = 0.5};

class RunFolderLease : public ::testing::Test {
 protected:
  std::string lease() const { return dir_ / "owner.lease"; }
  /// A process that has the run folder, until it is killed.
  pid_t owner() const {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const RunFolder folder(dir_.path(), "run");
      [[maybe_unused]] const auto told = ::write(ready[1], "x", 1);
      ::pause();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    return child;
  }
  TempDir dir_;
};

TEST_F(RunFolderLease, HasOneOwner) {
  const pid_t first = owner();
  expect_error(Exit::busy, {"in use", fmt::format("pid {}", first), "host " + this_host()}, "a second start",
               [&] { RunFolder(dir_.path(), "run"); });
  ::kill(first, SIGKILL);
  ::waitpid(first, nullptr, 0);
  const Stopwatch watch;
  RunFolder second(dir_.path(), "run");
  EXPECT_LT(watch.seconds(), 1) << "a dead process of this machine has nothing";
  second.require_intact();
  remove_tree(dir_ / "run/owner.lease");
  expect_error(Exit::storage, {"another owner"}, "a lease that was taken", [&] { second.require_intact(); });
}

TEST_F(RunFolderLease, AnOwnerThatEndsWhileItIsWaitedForHasNothing) {
  const pid_t first = owner();
  ::kill(first, SIGSTOP);
  const std::jthread end([first] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ::kill(first, SIGKILL);
    ::waitpid(first, nullptr, 0);
  });
  const Stopwatch watch;
  const RunFolder second(dir_.path(), "run");
  EXPECT_LT(watch.seconds(), 30) << "it has not renewed its lease for less than a minute";
}

TEST_F(RunFolderLease, IsTakenByWhateverErrorLocksFail) {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL}) {
    lock_error = error;
    {
      const RunFolder folder(dir_.path(), "run");
      EXPECT_TRUE(path_exists(dir_ / "run/owner.lease")) << error;
    }
    EXPECT_FALSE(path_exists(dir_ / "run/owner.lease")) << error;
  }
  lock_error = ENOLCK;
}

TEST_F(RunFolderLease, IsFreeWhenNobodyOfAnotherHostRenewsIt) {
  write_file_atomic(lease(), "host elsewhere, pid 1\nmachine elsewhere\nword x\nrenewed 7\n");
  const Stopwatch watch;
  const Lease taken(lease(), kFast);
  EXPECT_GE(watch.seconds(), kFast.stale);
  EXPECT_TRUE(taken.held());
}

TEST_F(RunFolderLease, OneThatIsRenewedIsSomebodys) {
  auto first = std::make_unique<Lease>(lease(), kFast);
  // As from another host: this process cannot see whether the owner lives.
  expect_error(Exit::busy, {"in use", fmt::format("pid {}", ::getpid())}, "renewed",
               [&] { Lease(lease(), kFast); });
  EXPECT_TRUE(first->held());
  first.reset();
  EXPECT_FALSE(path_exists(lease())) << "given back";
  EXPECT_TRUE(Lease(lease(), kFast).held());
}

TEST_F(RunFolderLease, WhoHasLostItKnows) {
  Lease first(lease(), {.renewal = 1000, .stale = 0.2});  // as one that is stopped
  {
    const Lease second(lease(), kFast);
    EXPECT_TRUE(second.held());
    EXPECT_FALSE(first.held());
  }
  EXPECT_FALSE(first.held());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
