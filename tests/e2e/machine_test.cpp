// Runs on machines as they are: ranks that share cores divide them, what is wrong with the shared memory of
// a host is said when a run starts, and programs are built for the processors they are to run on.

#include "src/core/process/cpus.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

class Machine : public RunFixture {
 protected:
  void SetUp() override {
    prepare(R"(
run.name = "one"
run.steps = 1
run.threads = "auto"
rollout.prompts_per_step = 2
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 4
checkpoint.every = 0
)",
            sums(8));
    ::unsetenv("OMP_NUM_THREADS");
    ::unsetenv("OMPI_MCA_btl_vader_backing_directory");
  }

  /// A new run on two ranks that share what `wrapper` gives both.
  void run(const std::string& wrapper, const std::string& more = "") const {
    ASSERT_EQ(program_.shell(wrapper + " " +
                             program_.mpirun(2, "train run.toml run.overwrite=true log.level=info " + more)),
              0)
        << output();
  }
  bool can(const std::string& command) const { return program_.shell(command) == 0; }
};

TEST_F(Machine, RanksThatShareCoresDivideThem) {
  const std::vector<int> cores = cpus_of_process().cores;
  if (cores.size() < 2 || !can("taskset --version")) GTEST_SKIP() << "one core, or no taskset";
  const std::string two = fmt::format("taskset -c {},{}", cores[0], cores[1]);
  run(two);
  EXPECT_TRUE(says("2 ranks, 1 thread each (")) << output();
  EXPECT_TRUE(says("2 ranks share them")) << output();
  run("OMP_NUM_THREADS=3 " + two);
  EXPECT_TRUE(says("2 ranks, 3 threads each (OMP_NUM_THREADS)")) << output();
  run("OMP_NUM_THREADS=3 " + two, "run.threads=2");
  EXPECT_TRUE(says("2 ranks, 2 threads each (as asked for)")) << output();
}

TEST_F(Machine, AStrangeNumberOfThreadsIsRefused) {
  for (const char* number : {"none", "0", "3x"}) {
    EXPECT_EQ(program_.shell(fmt::format("OMP_NUM_THREADS={} {} train run.toml", number, program_.temper())),
              78)
        << output();
    EXPECT_TRUE(says("OMP_NUM_THREADS is no number of threads")) << output();
  }
}

/// The runs are in a mount namespace of their own, which not every machine allows.
TEST_F(Machine, SharedMemoryThatIsTooSmallOrLitteredIsSaid) {
  if (!can("unshare -m mount -t tmpfs tmpfs /dev/shm")) GTEST_SKIP() << "no mount namespaces here";
  const auto with_shm = [&](const std::string& size, const std::string& then) {
    program_.write(
        "start.sh",
        fmt::format("set -e\nmount -t tmpfs -o size={} tmpfs /dev/shm\n{}\nexec \"$@\"\n", size, then));
    run("unshare -m sh start.sh");
  };
  const std::string litter =
      "for rank in 0 1; do head -c 3145728 /dev/zero > /dev/shm/vader_segment.h.0.aa.$rank; done\n"
      "touch -d '1 minute ago' /dev/shm/vader_segment.*";
  with_shm("64m", "");
  EXPECT_FALSE(says("/dev/shm")) << output();
  with_shm("64m", litter);
  EXPECT_TRUE(says("/dev/shm: killed jobs have 6.0 MiB of it in 2 files")) << output();
  with_shm("10m", litter);
  EXPECT_TRUE(says("/dev/shm is too small: 4.0 MiB free of 10.0 MiB")) << output();
  EXPECT_TRUE(says("rm /dev/shm/vader_segment.h.0.aa.*")) << output();
  EXPECT_FALSE(says("not enough space for")) << "Open MPI: " << output();
}

/// What `make` would do, without doing it.
class Build : public ::testing::Test {
 protected:
  std::string commands(const std::string& arguments) const {
    const std::string root = std::filesystem::current_path().string();
    EXPECT_EQ(program_.shell(fmt::format(
                  "env -u MAKEFLAGS -u MAKELEVEL make -n -B -C {} MODE=release CUDA=0 {}", root, arguments)),
              0)
        << program_.output();
    return program_.output();
  }
  const Program program_;
};

/// A native program that was built before is no program for other processors, nor the other way round.
TEST_F(Build, AnArchitectureHasProgramsOfItsOwn) {
  const std::string native = commands("ARCH=native build/release-cuda0/src/main.cpp.o"),
                    mixed = commands("ARCH=x86-64-v3 build/release-cuda0-x86-64-v3/src/main.cpp.o"),
                    link = commands("ARCH=x86-64-v3 build/temper");
  EXPECT_NE(native.find("-march=native"), std::string::npos) << native;
  EXPECT_NE(mixed.find("-march=x86-64-v3"), std::string::npos) << mixed;
  EXPECT_EQ(mixed.find("-march=native"), std::string::npos) << mixed;
  EXPECT_NE(link.find("release-cuda0-x86-64-v3/temper build/temper"), std::string::npos) << link;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
