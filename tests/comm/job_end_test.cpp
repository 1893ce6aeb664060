// How a job ends that cannot go on. A rank that never comes: every wait on it ends at the limit with an
// Error(Exit::hang) that names the wait. An error on one rank, or the same on all: one message, its exit
// code, and nobody waits. This program starts itself under mpirun for that.

#include <gtest/gtest.h>
#define OMPI_SKIP_MPICXX 1  // the removed C++ bindings do not compile without warnings
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <system_error>
#include <thread>

#include "src/comm/mpi_comm.h"
#include "src/comm/watch/watch.h"
#include "src/core/process/progress.h"
#include "src/core/threads/quiet_thread.h"
#include "src/ops/backend.h"
#include "src/run/record/run_log.h"
#include "src/run/verbs/guard.h"
#include "tests/support/program.h"

namespace temper {
namespace {

constexpr double kLimit = 0.1;
constexpr int kComms = 7;

struct Wait {
  const char* name;
  std::function<void(Comm&, Collectives&, const char* what)> call;
};

std::vector<Wait> waits() {
  static std::vector<float> memory(64);
  static std::vector<double> values(3);
  static Backend backend(Device::cpu);
  static Ctx& ctx = backend.ctx();
  const Tensor flat = make_tensor(memory.data(), DType::f32, {64});
  return {{"wait of a barrier", [](Comm& c, Collectives&, const char* what) { c.barrier(what); }},
          {"wait of a broadcast", [](Comm& c, Collectives&, const char* what) { c.broadcast("", 1, what); }},
          {"wait of a gather", [](Comm& c, Collectives&, const char* what) { c.all_gather("x", what); }},
          {"wait of a sum", [](Comm& c, Collectives&, const char* what) { c.all_reduce_sum(values, what); }},
          {"wait of a maximum", [](Comm& c, Collectives&, const char* what) { c.all_reduce_max(1, what); }},
          {"wait of a reduce-scatter",
           [=](Comm&, Collectives& c, const char* what) { c.reduce_scatter_sum(ctx, flat, what); }},
          {"wait of a shard gather",
           [=](Comm&, Collectives& c, const char* what) { c.all_gather_shards(ctx, flat, what); }}};
}

/// Rank 0 waits for rank 1 in every call, and at the end lets the error end the job as the program does.
void wait_for_nobody(const MpiSession& world) {
  std::vector<std::unique_ptr<Comm>> comms;
  std::vector<std::unique_ptr<Collectives>> tensors;
  for (int i = 0; i < kComms; ++i) {
    comms.push_back(world.make_comm({0, 1}, kLimit));
    tensors.push_back(world.make_collectives(0, world.rank(), Device::cpu, "test", kLimit));
  }
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(120));
  const std::vector<Wait> all = waits();
  for (size_t i = 0; i < all.size(); ++i) {
    try {
      all[i].call(*comms[i], *tensors[i], all[i].name);
      std::fprintf(stderr, "%s came back\n", all[i].name);
    } catch (const Error& e) {
      std::fprintf(stderr, "code %d: %s\n", static_cast<int>(e.code()), e.what());
      if (i + 1 == all.size()) throw;
    }
  }
}

/// The ranks of a job in which rank `failing` (or all: -1) has an error while the others wait long for it.
void fail_on(const MpiSession& world, int failing, Exit code) {
  const std::unique_ptr<Comm> comm = world.make_comm({0, 1}, 300.0);
  if (failing < 0 || failing == world.rank()) fail(code, {.what = "this is the error", .where = "here"});
  comm->barrier("wait for the rank with the error");
}

/// Before MPI is up: rank 1 has the error, and rank 0 a second later or never.
void fail_before_mpi(bool rank_0_too) {
  const bool rank_0 = std::string(std::getenv("OMPI_COMM_WORLD_RANK")) == "0";
  if (rank_0) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (!rank_0 || rank_0_too) fail(Exit::usage, {.what = "this is the error", .where = "here"});
}

/// Rank 1's GPU goes away in a step of a training run, after a checkpoint or before one; or at its start.
void lose_gpu(const MpiSession& world, const Phase& phase, bool has_checkpoint) {
  const std::unique_ptr<Comm> comm = world.make_comm({0, 1}, 300.0);
  enter_phase(phase, 1);
  retry_after_loss(
      [&]() -> int {
        if (world.rank() == 1)
          throw DeviceLost({.what = "the GPU is gone", .where = "here", .why = "ECC", .fix = "look"});
        comm->barrier("wait for the rank with the error");
        return 0;
      },
      [=] { return has_checkpoint; });
}

/// Rank 1 stops rank 0 for longer than the limit of its watch and ends: mpirun wakes rank 0 and ends it, too.
[[noreturn]] void stop_rank_0(const MpiSession& world) {
  // The deputy has all the time: it does not speak first.
  Watch watch({.limit_seconds = world.rank() == 0 ? 0.5 : 100.0, .report_file = "", .has_checkpoint = [] {
                 return false;
               }});
  watch.connect(world);
  const std::unique_ptr<Comm> comm = world.make_comm({0, 1}, 300.0);
  const pid_t rank_0 = std::stoi(comm->broadcast(std::to_string(::getpid()), 0, "pid of rank 0, copied"));
  comm->barrier("both are watched");
  if (world.rank() == 1) {
    ::kill(rank_0, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    ::_exit(5);
  }
  for (;;) {
    note_progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// Rank 1 does not get out of MPI_Finalize: it is stopped there, or at work for ever.
void stay_in_finalize(bool stopped, int argc, char** argv) {
  Watch watch({.limit_seconds = 1, .report_file = "", .has_checkpoint = [] { return true; }});
  const MpiSession world(&argc, &argv);
  watch.connect(world);
  if (world.rank() == 0) return;
  const auto stay = [](MPI_Comm, int, void* state, void*) -> int {
    if (state) ::raise(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(120));
    return MPI_SUCCESS;
  };
  int key = 0;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, stay, &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, stopped ? argv : nullptr);  // MPI_Finalize deletes it first
}

/// From here on no thread begins: none finds room for its stack.
void leave_no_room_for_threads() {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, size_t{1} << 47);
  ::pthread_setattr_default_np(&attributes);
  try {
    quiet_thread([] {}).join();
    std::fprintf(stderr, "a thread began\n");
  } catch (const std::system_error&) {
  }
}

int run_child(const std::string& mode, int argc, char** argv) {
  return run_guarded([&] {
    if (mode.starts_with("--stays-in-finalize"))
      return stay_in_finalize(mode.ends_with("stopped"), argc, argv), 0;
    if (mode == "--rank-0-is-late" || mode == "--rank-1-alone") fail_before_mpi(mode == "--rank-0-is-late");
    const MpiSession world(&argc, &argv);
    if (mode == "--no-room-for-threads") leave_no_room_for_threads();
    if (mode == "--nobody-comes") wait_for_nobody(world);
    if (mode == "--rank-1-fails") fail_on(world, 1, Exit::storage);
    if (mode == "--rank-1-fails-early") fail_on(world, 1, Exit::usage);
    if (mode.starts_with("--logged")) {  // as with the trainer on rank 1
      start_log(fmt::format("rank-{}.log", world.rank()), "info", world.rank(), world.rank() == 1);
      fail_on(world, mode == "--logged-rank-1-fails" ? 1 : 0, Exit::storage);
    }
    if (mode == "--rank-0-was-stopped") stop_rank_0(world);
    if (mode == "--gpu-lost") lose_gpu(world, {40, "train"}, true);
    if (mode == "--gpu-lost-before-a-checkpoint") lose_gpu(world, {20, "rollout"}, false);
    if (mode == "--gpu-lost-at-the-start") lose_gpu(world, Phase::load, true);
    if (mode == "--all-fail") fail_on(world, -1, Exit::usage);
    if (mode == "--all-find-bad-data") fail_on(world, -1, Exit::data);
    return 0;
  });
}

class JobEnd : public ::testing::Test {
 protected:
  int run(const std::string& mode) const {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string root = ::getuid() == 0 ? " --allow-run-as-root" : "";
    return program_.shell(
        fmt::format("timeout 60 mpirun -n 2 --oversubscribe --bind-to none{} {} {}", root, self, mode));
  }
  std::string output() const { return program_.output(); }
  int64_t count(const std::string& text) const { return times_in(output(), text); }

  Program program_;
};

TEST_F(JobEnd, AWaitEndsAtItsLimitAndIsNamed) {
  EXPECT_EQ(run("--nobody-comes"), static_cast<int>(Exit::hang));
  for (const Wait& wait : waits())
    EXPECT_EQ(count(fmt::format("code 76: rank 0 waits too long in '{}'", wait.name)), 1)
        << wait.name << " in: " << output();
  EXPECT_EQ(count("came back"), 0) << output();
  EXPECT_GE(count("cluster.watchdog_seconds"), 1) << "the message says what to do";
}

TEST_F(JobEnd, ARankThatStaysInFinalizeIsNamed) {
  EXPECT_EQ(run("--stays-in-finalize-stopped"), static_cast<int>(Exit::hang)) << output();
  EXPECT_EQ(count("  where: rank 1, "), 1) << output();
  EXPECT_EQ(run("--stays-in-finalize"), static_cast<int>(Exit::hang)) << output();
  EXPECT_GE(count("MPI_Finalize"), 1) << output();
}

/// Without the one that would end it if MPI did not.
TEST_F(JobEnd, AJobEndsInOrderWhereNoThreadCanBegin) {
  EXPECT_EQ(run("--no-room-for-threads"), 0) << output();
  EXPECT_EQ(count("a thread began"), 0) << output();
}

TEST_F(JobEnd, ARankThatWasStoppedBlamesNobodyWhenTheLauncherWakesIt) {
  EXPECT_NE(run("--rank-0-was-stopped"), 0) << output();
  EXPECT_EQ(count("  where: rank "), 0) << output();
}

TEST_F(JobEnd, AnErrorOfOneRankEndsTheOthers) {
  EXPECT_EQ(run("--rank-1-fails"), static_cast<int>(Exit::storage)) << output();
  EXPECT_EQ(count("rank 1: this is the error"), 1) << output();
  EXPECT_EQ(run("--rank-1-fails-early"), static_cast<int>(Exit::usage)) << output();
  EXPECT_EQ(count("rank 1: this is the error"), 1) << output();
}

TEST_F(JobEnd, AGpuThatIsLostEndsARunThatCanGoOnAsALostRankDoes) {
  EXPECT_EQ(run("--gpu-lost"), static_cast<int>(Exit::retry)) << output();
  EXPECT_EQ(count("rank 1: the GPU is gone"), 1) << output();
  EXPECT_EQ(count("start the same command again, it goes on from the newest checkpoint; look"), 1)
      << output();
  for (const char* without : {"--gpu-lost-before-a-checkpoint", "--gpu-lost-at-the-start"}) {
    EXPECT_EQ(run(without), static_cast<int>(Exit::environment)) << output();
    EXPECT_EQ(count("rank 1: the GPU is gone"), 1) << output();
    EXPECT_EQ(count("start the same command again"), 0) << output();
  }
}

TEST_F(JobEnd, AnErrorIsOnStderrOnceWhicheverRankHasTheConsole) {
  for (const int rank : {0, 1}) {
    EXPECT_EQ(run(fmt::format("--logged-rank-{}-fails", rank)), static_cast<int>(Exit::storage)) << output();
    EXPECT_EQ(count("this is the error"), 1) << output();
    EXPECT_EQ(count(fmt::format("rank {}: this is the error", rank)), 1) << output();
    EXPECT_NE(program_.read(fmt::format("rank-{}.log", rank)).find("this is the error"), std::string::npos);
  }
}

TEST_F(JobEnd, AMistakeThatAllRanksFindIsToldOnce) {
  EXPECT_EQ(run("--all-fail"), static_cast<int>(Exit::usage)) << output();
  EXPECT_EQ(count("this is the error"), 1) << output();
  EXPECT_EQ(count("MPI_ABORT"), 0) << output();
  EXPECT_EQ(run("--all-find-bad-data"), static_cast<int>(Exit::data)) << output();
  EXPECT_EQ(count("rank 0: this is the error"), 1) << output();
  EXPECT_EQ(count("this is the error"), 1) << output();
}

TEST_F(JobEnd, AMistakeIsToldBeforeTheLauncherEndsTheOthers) {
  EXPECT_EQ(run("--rank-0-is-late"), static_cast<int>(Exit::usage)) << output();
  EXPECT_EQ(count("rank 0: this is the error"), 1) << output();
  EXPECT_EQ(count("rank 1: this is the error"), 0) << output();
  EXPECT_EQ(run("--rank-1-alone"), static_cast<int>(Exit::usage)) << output();
  EXPECT_EQ(count("rank 1: this is the error"), 1) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (!mode.empty() && !mode.starts_with("--gtest")) return temper::run_child(mode, argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
