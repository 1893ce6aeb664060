// How long a thread's turns on a core are, as the system tells it.

#include "src/comm/short_turns.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

namespace temper {
namespace {

struct Turns {
  uint32_t size = sizeof(Turns), policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0, deadline_ns = 0, period_ns = 0;
};

Turns turns_of_this_thread() {
  Turns turns;
  EXPECT_EQ(::syscall(SYS_sched_getattr, 0, &turns, sizeof turns, 0), 0);
  return turns;
}

Turns turns_of_a_new_thread() {
  Turns turns;
  std::thread([&] { turns = turns_of_this_thread(); }).join();
  return turns;
}

/// On a thread of its own: others keep theirs.
template <class Body>
void beside(const Body& body) {
  std::thread(body).join();
}

TEST(ShortTurns, AreThoseOfTheThreadAlone) {
  const Turns usual = turns_of_this_thread();
  if (usual.runtime_ns == 0) GTEST_SKIP() << "this Linux does not tell the length of turns";
  beside([&] {
    ask_for_short_turns();
    const Turns now = turns_of_this_thread();
    EXPECT_EQ(now.runtime_ns, 100'000u);
    EXPECT_EQ(now.policy, usual.policy);
    EXPECT_EQ(now.nice, usual.nice);
    EXPECT_EQ(turns_of_a_new_thread().runtime_ns, usual.runtime_ns);
  });
  EXPECT_EQ(turns_of_this_thread().runtime_ns, usual.runtime_ns);
}

TEST(ShortTurns, AThreadOfAnotherClassStaysInIt) {
  beside([] {
    const sched_param none{};
    ASSERT_EQ(::sched_setscheduler(0, SCHED_BATCH, &none), 0);
    ask_for_short_turns();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_BATCH);
  });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
