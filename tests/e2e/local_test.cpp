// `--local N`: to a person and to a script the ranks of this host are one program. How it is stopped, what is
// seen when a rank dies, that nothing goes on when it is over; through the program itself.

#include "tests/support/local_run.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

using Where = LocalRun::Where;
constexpr int kRetry = static_cast<int>(Exit::retry);

const char* kConfig = R"(
run.name = "run"
run.steps = 1000000
rollout.prompts_per_step = 3
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 6
cluster.watchdog_seconds = 20
)";

class Local : public RunFixture {
 protected:
  void SetUp() override { prepare(kConfig, sums(17)); }

  std::string train(const std::string& more = "") const {
    return program_.temper() + " train run.toml --local 2 " + more;
  }
  bool trains() const { return steps_done("run") > 1; }
  static std::string with_shim(const std::string& name) {
    const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    return "env LD_PRELOAD=" + (here / (name + "_shim.so")).string() + " ";
  }
  void remove_run() const { std::filesystem::remove_all(program_.path("runs")); }
  /// Moments after the end: ranks see that their parent is gone.
  static bool gone(const LocalRun& job) {
    for (const Stopwatch waited; !job.processes().empty();) {
      if (waited.seconds() > 5) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  void expect_nothing_left(LocalRun& job) const {
    EXPECT_TRUE(job.processes().empty()) << job.printed();
    EXPECT_TRUE(list_directory(program_.path("tmp")).empty());
    EXPECT_EQ(words_of_launcher(job.printed()), "") << job.printed();
  }
};

TEST_F(Local, ASignalSavesAndTheEndIsThatOfTheProgram) {
  const std::pair<int, const char*> signals[] = {
      {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}};
  for (const auto& [signal, name] : signals) {
    const Where where = signal == SIGTERM ? Where::pipe : Where::terminal;
    LocalRun job(program_, train(), where);
    const int64_t before = steps_done("run");
    ASSERT_TRUE(job.until([&] { return steps_done("run") > before + 1; })) << job.printed();
    job.send(signal);
    EXPECT_EQ(job.wait(), kRetry) << job.printed();
    expect_nothing_left(job);
    if (where == Where::terminal) {
      EXPECT_EQ(job.terminal_defect(), "");
    }
    const int64_t step = steps_done("run");
    EXPECT_TRUE(exists(checkpoint("run", step) + "/manifest.json")) << job.printed();
    const std::string words = fmt::format("{}: saved step {}; run the same command again", name, step);
    EXPECT_NE(job.printed().find(words), std::string::npos) << words << " in: " << job.printed();
    EXPECT_EQ(job.printed().find("kill -USR1 of mpirun"), std::string::npos);
  }
}

/// A GPU's driver has threads in the process, which take what its own thread does not.
TEST_F(Local, AThreadOfALibraryDoesNotEndItBySignal) {
  LocalRun job(program_, with_shim("thread") + train(), Where::terminal);
  ASSERT_TRUE(job.until([&] { return trains(); })) << job.printed();
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), kRetry) << job.printed();
  expect_nothing_left(job);
}

/// Before there is anything to save, in each state of a start.
TEST_F(Local, BeforeAnythingCanBeSavedASignalEndsItWithItsOwnNumber) {
  const std::pair<int, int> cases[] = {{SIGINT, 0}, {SIGHUP, 30}, {SIGTERM, 120}, {SIGUSR1, 250}};
  for (const auto& [signal, milliseconds] : cases) {
    remove_run();
    LocalRun job(program_, train(), Where::terminal);
    const Stopwatch started;
    // The shell in front of the program, and main before it begins, are ended by any signal, too.
    job.until([&] { return !list_directory(program_.path("tmp")).empty(); });
    job.until([&] { return started.seconds() * 1000 > milliseconds; });
    job.send(signal);
    const int code = job.wait();
    EXPECT_TRUE(code == 128 + signal || (code == kRetry && steps_done("run") >= 0)) << code << job.printed();
    if (code != kRetry) {
      EXPECT_EQ(steps_done("run"), 0) << job.printed();
      EXPECT_EQ(times_in(job.printed(), "before there was anything to save: ended"), 1) << job.printed();
    }
    expect_nothing_left(job);
    EXPECT_EQ(job.terminal_defect(), "");
  }
}

/// It is at once only after 2 s: until then signals are taken for the first one.
TEST_F(Local, ASecondSignalEndsItAtOnce) {
  prepare_long_model();
  LocalRun job(program_,
               train("model.path=long rollout.max_new_tokens=16000 rollout.ignore_eos=true "
                     "rollout.prompts_per_step=1 rollout.samples_per_prompt=2 rollout.kv_memory=50000000"),
               Where::terminal);
  ASSERT_TRUE(job.until([&] {
    return job.printed().find("step 1: generating, 0/1 prompts") != std::string::npos;
  })) << job.printed();
  for (const auto& [rank, process] : job.ranks()) ::kill(process, SIGSTOP);  // they would save within moments
  job.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  job.send(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(1700));
  EXPECT_FALSE(job.ranks().empty()) << "a signal within 2 s was taken for a second one";
  const Stopwatch since;
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.printed();
  EXPECT_LT(since.seconds(), 10);
  expect_nothing_left(job);
  EXPECT_EQ(job.terminal_defect(), "");
  EXPECT_FALSE(exists("runs/run/checkpoints"));
}

/// `pkill -f` reaches all of them, and the launcher hands its own on.
TEST_F(Local, ASignalToAllProcessesIsOne) {
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) {
    LocalRun job(program_, train(), Where::pipe);
    const int64_t before = steps_done("run");
    ASSERT_TRUE(job.until([&] { return steps_done("run") > before + 1; })) << job.printed();
    for (int times = 0; times < 2; ++times)
      for (const pid_t process : job.processes()) ::kill(process, signal);
    EXPECT_EQ(job.wait(), kRetry) << job.printed();
    EXPECT_TRUE(exists(checkpoint("run", steps_done("run")) + "/manifest.json")) << job.printed();
    expect_nothing_left(job);
  }
}

TEST_F(Local, ARankThatDiesIsReportedAndNotByTheLauncher) {
  const std::tuple<int, Where, const char*, int> cases[] = {
      {1, Where::terminal, "checkpoint.every=1", kRetry},
      {0, Where::pipe, "checkpoint.every=1", kRetry},
      {1, Where::pipe, "", static_cast<int>(Exit::internal)}};
  for (const auto& [victim, where, keys, code] : cases) {
    remove_run();
    LocalRun job(program_, train(keys), where);
    ASSERT_TRUE(job.until([&] { return trains(); })) << job.printed();
    const pid_t process = job.ranks().at(victim);
    ::kill(process, SIGKILL);
    EXPECT_EQ(job.wait(), code) << job.printed();
    expect_nothing_left(job);
    const std::string printed = job.printed();
    EXPECT_EQ(times_in(printed, " died"), 1) << printed;
    for (const std::string& part : {fmt::format("rank {} on host ", victim), fmt::format("pid {}", process),
                                    fmt::format("logs/rank-{:04d}.log", victim)})
      EXPECT_NE(printed.find(part), std::string::npos) << part << " in: " << printed;
  }
}

/// Before it could say who it is: the others, which the launcher ends then, are not taken for it.
TEST_F(Local, ARankThatDiesAtItsStartIsNamed) {
  LocalRun job(program_, with_shim("early_death") + train(), Where::pipe);
  EXPECT_EQ(job.wait(), static_cast<int>(Exit::internal)) << job.printed();
  expect_nothing_left(job);
  const std::string printed = job.printed();
  for (const char* part : {"rank 1 on host ", " died", "where: rank 1, at its start", "signal 9"})
    EXPECT_NE(printed.find(part), std::string::npos) << part << " in: " << printed;
}

/// Whoever dies, all end: the parent, mpirun.
TEST_F(Local, NothingOutlivesTheParentOrTheLauncher) {
  {
    LocalRun job(program_, train("checkpoint.every=1"), Where::terminal);
    ASSERT_TRUE(job.until([&] { return trains(); })) << job.printed();
    ::kill(job.pid(), SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
    EXPECT_TRUE(gone(job)) << "something goes on without its parent";
  }
  LocalRun job(program_, train("checkpoint.every=1"), Where::pipe);
  const int64_t before = steps_done("run");
  ASSERT_TRUE(job.until([&] { return steps_done("run") > before + 1; })) << job.printed();
  for (const pid_t process : job.processes())
    if (process != job.pid() && variable_of(process, "OMPI_COMM_WORLD_RANK=").empty())
      ::kill(process, SIGKILL);
  EXPECT_EQ(job.wait(), kRetry) << job.printed();
  EXPECT_TRUE(job.processes().empty()) << job.printed();
  EXPECT_NE(job.printed().find("temper: the launcher of the ranks on host "), std::string::npos)
      << job.printed();
}

/// stdout is the user's own: a file, a pipe that nobody reads any more, a full disk.
TEST_F(Local, ResultsAreThoseOfTheProgramAlone) {
  program_.write("tokens.jsonl", "{\"tokens\":[1,2,3]}\n{\"tokens\":[4,5,6,7]}\n{\"tokens\":[8,9]}\n");
  const std::string score = "score --model model --input tokens.jsonl ";
  ASSERT_EQ(program_.run(score + "> alone.jsonl"), 0) << output();
  ASSERT_EQ(program_.run(score + "--local 2 > local.jsonl"), 0) << output();
  EXPECT_EQ(program_.read("local.jsonl"), program_.read("alone.jsonl"));
  EXPECT_EQ(output(), "");
  ASSERT_EQ(program_.run(score + "--local=1 > local.jsonl"), 0) << output();
  EXPECT_EQ(program_.read("local.jsonl"), program_.read("alone.jsonl"));
  EXPECT_EQ(program_.run(score + "--local 2 > /dev/full"), static_cast<int>(Exit::storage)) << output();
  EXPECT_EQ(words_of_launcher(output()), "") << output();
  // In an allocation of a scheduler: its hosts are not this one.
  EXPECT_EQ(program_.shell("SLURM_JOB_ID=1 SLURM_JOBID=1 SLURM_NODELIST='none[1-2]' SLURM_NNODES=2 "
                           "SLURM_JOB_NODELIST='none[1-2]' SLURM_JOB_NUM_NODES=2 SLURM_PROCID=0 "
                           "SLURM_TASKS_PER_NODE='4(x2)' " +
                           program_.temper() + " " + score + "--local 2 > local.jsonl"),
            0)
      << output();
  EXPECT_EQ(program_.read("local.jsonl"), program_.read("alone.jsonl"));
  // As in a container, where no ssh is.
  make_directories(program_.path("bin"));
  EXPECT_EQ(program_.shell("ln -s $(command -v mpirun) bin/mpirun && PATH=$PWD/bin " + program_.temper() +
                           " " + score + "--local 2 > local.jsonl"),
            0)
      << output();
  EXPECT_EQ(program_.read("local.jsonl"), program_.read("alone.jsonl"));
}

TEST_F(Local, WhatIsWrongIsSaidBeforeAnythingStarts) {
  const std::string score = " score --model model --input data.jsonl --local 2";
  for (const char* variables : {"OMPI_COMM_WORLD_RANK=0", "PMIX_RANK=0", "PMI_RANK=0",
                                "SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1"}) {
    EXPECT_EQ(program_.shell(std::string(variables) + " " + program_.temper() + score),
              static_cast<int>(Exit::usage))
        << variables;
    EXPECT_TRUE(says("--local under a launcher")) << output();
  }
  EXPECT_EQ(program_.shell("PATH=/nowhere " + program_.temper() + score),
            static_cast<int>(Exit::environment));
  EXPECT_TRUE(says("no mpirun of Open MPI")) << output();
  make_directories(program_.path("bin"));
  program_.write("bin/mpirun", "#!/bin/sh\necho HYDRA build details\n");
  EXPECT_EQ(program_.shell("chmod +x bin/mpirun; PATH=$PWD/bin " + program_.temper() + score),
            static_cast<int>(Exit::environment));
  EXPECT_TRUE(says("HYDRA build details")) << output();
  EXPECT_EQ(program_.run("train run.toml run.stepz=1 --local 2"), static_cast<int>(Exit::usage));
  EXPECT_TRUE(says("temper: ") && says("did you mean `run.steps`?")) << output();
  EXPECT_EQ(program_.shell("OMPI_MCA_pml=none_of_them " + program_.temper() + score),
            static_cast<int>(Exit::internal));
  EXPECT_TRUE(says("it says: ")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
