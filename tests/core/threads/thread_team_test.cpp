// Loops of a team: every piece once, whoever runs it and however many threads come late or sleep; indices,
// exceptions, loops within loops, callers beside each other, forked children, and the end at any moment.

#include "src/core/threads/thread_team.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "src/core/parallel.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

using Counts = std::vector<std::atomic<int>>;

void expect_once(const Counts& runs, const std::string& what) {
  for (size_t i = 0; i < runs.size(); ++i) ASSERT_EQ(runs[i], 1) << what << ", piece " << i;
}

/// As many pieces as the team has threads, each of which waits for all others: every thread has to come.
void meet(
    ThreadTeam& team, const std::function<void()>& then = [] {}) {
  std::atomic<int> here = 0;
  parallel_for(team, team.size(), [&](int64_t) {
    for (++here; here < team.size();) ::sched_yield();
    then();
  });
}

std::vector<pid_t> other_thread_ids() {
  std::vector<pid_t> ids;
  DIR* tasks = ::opendir("/proc/self/task");
  while (const dirent* entry = ::readdir(tasks))
    if (entry->d_name[0] != '.' && std::stoi(entry->d_name) != ::getpid())
      ids.push_back(std::stoi(entry->d_name));
  ::closedir(tasks);
  return ids;
}

/// State letters of the other threads of this process, as in /proc.
std::string other_threads() {
  std::string states;
  for (const pid_t id : other_thread_ids()) {
    std::string line;
    std::getline(std::ifstream(fmt::format("/proc/self/task/{}/stat", id)), line);
    const size_t name_end = line.rfind(')');
    if (name_end != std::string::npos) states += line[name_end + 2];
  }
  return states;
}

/// Runs `body` in a forked child, as its exit code tells.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ThreadTeam, EveryPieceRunsOnceInEachOfManyLoops) {
  for (const int size : {1, 2, 5, 32}) {
    ThreadTeam team(size);
    for (int loop = 0; loop < 1000; ++loop) {
      Counts runs(static_cast<size_t>(loop % 41));
      std::atomic<bool> strange = false;
      parallel_for(team, loop % 41, [&](int64_t i) {
        ++runs[static_cast<size_t>(i)];
        if (team.index() < 0 || team.index() >= size) strange = true;
      });
      expect_once(runs, std::to_string(size) + " threads, loop " + std::to_string(loop));
      ASSERT_FALSE(strange);
    }
  }
}

TEST(ThreadTeam, TwoPiecesAtOnceHaveTwoIndices) {
  ThreadTeam team(3);
  std::vector<int64_t> by_thread(3, 0);  // no other thread of the same index adds to an entry
  for (int loop = 0; loop < 200; ++loop)
    parallel_for(team, 500, [&](int64_t i) { by_thread[static_cast<size_t>(team.index())] += i; });
  EXPECT_EQ(std::accumulate(by_thread.begin(), by_thread.end(), int64_t{0}), 200 * 499 * 500 / 2);
}

TEST(ThreadTeam, ALoopInAPieceIsItsThreadsOwn) {
  ThreadTeam team(4), other(2);
  std::atomic<int> inner = 0;
  std::atomic<bool> elsewhere = false;
  parallel_for(team, 8, [&](int64_t) {
    const std::thread::id mine = std::this_thread::get_id();
    const int index = team.index();
    for (ThreadTeam* of : {&team, &other})
      parallel_for(*of, 8, [&](int64_t) {
        ++inner;
        if (std::this_thread::get_id() != mine || team.index() != index || other.index() != 0)
          elsewhere = true;
      });
  });
  EXPECT_EQ(inner, 128);
  EXPECT_FALSE(elsewhere);
  EXPECT_EQ(team.index(), 0) << "outside of loops";
}

TEST(ThreadTeam, CallersBesideEachOther) {
  ThreadTeam team(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong = 0;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int loop = 0; loop < 500; ++loop) {
        Counts runs(17);
        parallel_for(team, 17, [&](int64_t i) {
          ++runs[static_cast<size_t>(i)];
          ::sched_yield();
        });
        for (const auto& n : runs) wrong += n != 1;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadTeam, TheFirstExceptionComesOutAndTheTeamGoesOn) {
  ThreadTeam team(4);
  for (int loop = 0; loop < 200; ++loop) {
    const int64_t first = loop % 60;
    std::string message;
    try {
      parallel_for(team, 64, [&](int64_t i) {
        ::sched_yield();  // the others come, too
        if (i >= first) throw std::runtime_error(std::to_string(i));
      });
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
    ASSERT_EQ(message, std::to_string(first));
    Counts runs(9);
    parallel_for(team, 9, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    expect_once(runs, "after an exception");
  }
}

/// Gaps around the time that threads spin: they fall asleep just while the next loop begins.
TEST(ThreadTeam, NoWakeUpIsLost) {
  ThreadTeam team(3);
  for (int loop = 0; loop < 1500; ++loop) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(loop % 100);
    while (std::chrono::steady_clock::now() < end) {
    }
    meet(team);
  }
}

/// Those of a piece wait for all threads to come, and come they do after any sleep.
TEST(ThreadTeam, IdleThreadsSleep) {
  ThreadTeam team(4);
  for (int round = 0; round < 3; ++round) {
    meet(team);
    std::string states = "R";
    for (int look = 0; look < 3000 && states.find('R') != std::string::npos; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      states = other_threads();
    }
    ASSERT_EQ(states.find('R'), std::string::npos) << "threads that spin for ever: " << states;
  }
}

std::atomic<int> held = 0;
std::atomic<bool> release = false;
void hold(int) {
  ++held;
  while (!release) ::sched_yield();
  --held;
}

/// As on a machine whose other cores are busy: the team's threads are somewhere, and get no time to run.
TEST(ThreadTeam, ALoopDoesNotWaitForThreadsThatDoNotRun) {
  ThreadTeam team(4);
  meet(team);
  const auto before = ::signal(SIGFPE, hold);  // one of those that they do not block
  for (const pid_t id : other_thread_ids()) ::syscall(SYS_tgkill, ::getpid(), id, SIGFPE);
  while (held < 3) ::sched_yield();
  for (int loop = 0; loop < 3; ++loop) {
    Counts runs(50);
    parallel_for(team, 50, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    expect_once(runs, "alone");
  }
  EXPECT_EQ(held, 3);
  release = true;
  meet(team);
  ::signal(SIGFPE, before);
}

TEST(ThreadTeam, EndsAtAnyMoment) {
  for (int i = 0; i < 600; ++i) {
    ThreadTeam team(4);
    for (int loop = 0; loop <= i % 3; ++loop) parallel_for(team, 2, [](int64_t) {});
  }
  ThreadTeam without_loops(4);
}

TEST(ThreadTeam, AForkedChildLoopsAlone) {
  ThreadTeam team(4);
  meet(team);
  EXPECT_EQ(in_child([&] {
              Counts runs(50);
              for (int loop = 0; loop < 3; ++loop)
                parallel_for(team, 50, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
              return std::all_of(runs.begin(), runs.end(), [](int n) { return n == 3; }) ? 0 : 1;
            }),
            0);
  meet(team);
}

TEST(ThreadTeam, SignalsAreForTheCaller) {
  ThreadTeam team(3);
  std::atomic<int> blocked = 0, own = 0;
  meet(team, [&] {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked += ::sigismember(&mask, SIGTERM);
    own += ::sigismember(&mask, SIGSEGV);
  });
  EXPECT_EQ(blocked, 2) << "of a caller and two threads";
  EXPECT_EQ(own, 0);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they take terabytes of addresses
TEST(ThreadTeam, NoMoreThreadsIsSaid) {
  const int code = in_child([] {
    const rlimit limit{1 << 28, 1 << 28};  // room for the stacks of about thirty threads
    ::setrlimit(RLIMIT_AS, &limit);
    ThreadTeam team(1000);
    try {
      parallel_for(team, 2, [](int64_t) {});
    } catch (const Error& e) {
      return e.code() == Exit::environment && std::string(e.what()).find("of 1000") != std::string::npos ? 0
                                                                                                         : 1;
    }
    return 2;
  });
  EXPECT_EQ(code, 0);
}
#endif

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
