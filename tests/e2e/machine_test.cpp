// Runs on machines as they are: ranks that share cores divide them, what is wrong with the shared memory of
// a host is said when a run starts, what killed jobs left there is cleared, and programs are built for the
// processors they are to run on.

#include "src/core/process/cpus.h"
#include "tests/support/background.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

/// A case mounts something over /dev/shm, where files of tests may lie.
struct FilesElsewhere {
  FilesElsewhere() { ::setenv("TMPDIR", "/tmp", 1); }
};

class Machine : FilesElsewhere, public RunFixture {
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

/// Sessions and segments of Open MPI in folders of the test.
class Litter : public Machine {
 protected:
  void SetUp() override {
    Machine::SetUp();
    for (const char* folder : {"mpi", "shm"}) make_directories(program_.path(folder));
  }
  std::string command(const std::string& run, const std::string& more = "") const {
    return fmt::format(
        "env OMPI_MCA_orte_tmpdir_base={} OMPI_MCA_btl_vader_backing_directory={} {}", program_.path("mpi"),
        program_.path("shm"),
        program_.mpirun(2, fmt::format("train run.toml run.name={} checkpoint.every=0 {}", run, more)));
  }
  /// The folder of Open MPI's sessions of this user, "mpi/ompi.HOST.USER".
  std::string sessions() const {
    const std::vector<std::string> names = list_directory(program_.path("mpi"));
    return names.empty() ? "mpi/none" : "mpi/" + names.front();
  }
  std::string session(pid_t launcher) const { return fmt::format("{}/pid.{}", sessions(), launcher); }
  /// Segments of the job; `mark`: what temper wrote into its session.
  std::vector<std::string> segments(const std::string& mark) const {
    std::vector<std::string> found;
    for (const std::string& name : list_directory(program_.path("shm")))
      if (name.find(fmt::format(".{}.", mark)) != std::string::npos) found.push_back("shm/" + name);
    return found;
  }
  void make_old(const std::string& file) const {
    std::filesystem::last_write_time(program_.path(file),
                                     std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1));
  }
};

/// kill -9 of an mpirun and of its ranks, beside a job that lives, and of what other programs left.
TEST_F(Litter, OfAKilledJobIsClearedAtTheNextStartAndNoOther) {
  Background lives(program_, command("lives", "run.steps=100000"), "lives.log");
  ASSERT_TRUE(lives.until([&] { return steps_done("lives") > 0; })) << program_.read("lives.log");
  std::string killed, mark;
  {
    Background job(program_, command("killed", "run.steps=100000"));
    ASSERT_TRUE(job.until([&] { return steps_done("killed") > 0; })) << output();
    killed = session(job.pid());
    mark = program_.read(killed + "/temper-job");
    const std::map<int, pid_t> ranks = job.ranks();
    ASSERT_EQ(ranks.size(), 2u);
    ::kill(job.pid(), SIGKILL);
    for (const auto& [rank, process] : ranks) ::kill(process, SIGKILL);
    job.wait();
  }
  const std::vector<std::string> left = segments(mark);
  ASSERT_EQ(left.size(), 2u) << "Open MPI cleans up by itself";
  ASSERT_TRUE(exists(killed));
  const std::string of_living = session(lives.pid()), living = program_.read(of_living + "/temper-job");
  // Another program's job that was killed has no mark, and other names are nobody's business.
  const std::string host = std::filesystem::path(sessions()).filename().string().substr(5);
  const std::vector<std::string> others = {
      sessions() + "/pid.4194303/0/contact",         "mpi/notes/pid.4194303/x",
      fmt::format("shm/vader_segment.{}.1.0", host), fmt::format("shm/vader_segment.{}.{}0.0", host, mark),
      "shm/vader_segment.other." + mark + ".0",      "shm/notes"};
  for (const std::string& file : others) {
    make_directories(std::filesystem::path(program_.path(file)).parent_path().string());
    program_.write(file, std::string(5000, 'x'));
    make_old(file);
  }
  for (const std::string& file : left) make_old(file);

  ASSERT_EQ(program_.shell(command("next", "run.steps=1")), 0) << output();
  EXPECT_EQ(count("temper: removed what 1 killed job left: "), 1) << output();
  EXPECT_FALSE(exists(killed));
  for (const std::string& file : left) EXPECT_FALSE(exists(file)) << file;
  for (const std::string& file : others) EXPECT_TRUE(exists(file)) << file;
  EXPECT_TRUE(exists(of_living));
  EXPECT_EQ(segments(living).size(), 2u);
  const int64_t steps = steps_done("lives");
  EXPECT_TRUE(lives.until([&] { return steps_done("lives") > steps; })) << program_.read("lives.log");
  EXPECT_EQ(program_.shell(command("after", "run.steps=1")), 0) << output();
  EXPECT_FALSE(says("removed what")) << output();
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
