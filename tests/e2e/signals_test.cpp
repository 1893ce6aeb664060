// How a run is stopped from outside. SIGTERM, SIGINT, SIGUSR1 and SIGHUP save, also inside a step, and leave
// with code 75, and the run that goes on from there is the run that was never stopped, bit for bit; a second
// signal, and nothing less, ends it at once.

#include <stdexcept>

#include "src/core/stopwatch.h"
#include "tests/support/background.h"
#include "tests/support/run_fixture.h"
#include "tests/support/same_run.h"

namespace temper {
namespace {

constexpr int kSteps = 60;
constexpr int kRetry = static_cast<int>(Exit::retry);

const char* kConfig = R"(
run.name = "whole"
run.steps = 60
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 3
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 6
optimizer.schedule = "linear"
checkpoint.export_hf_every = 60
)";

class Signals : public RunFixture {
 protected:
  void SetUp() override { prepare(kConfig, sums(17)); }

  std::string train(const std::string& overrides) const { return "train run.toml " + overrides; }
  void expect_saved_at(const std::string& name, int64_t step) const {
    EXPECT_TRUE(exists(checkpoint(name, step) + "/manifest.json"))
        << "after step " << step << ": " << output();
  }
  /// Waits for two more steps of the run, sends the signal, and expects an orderly stop. The ranks stand
  /// still until the signal has arrived: a fast machine would be through all steps before.
  void stop(Background& job, const std::string& name, int signal, const std::vector<pid_t>& ranks,
            const std::vector<pid_t>& to) const {
    const int64_t before = steps_done(name);
    ASSERT_TRUE(job.until([&] { return steps_done(name) >= before + 2; })) << output();
    for (pid_t rank : ranks) ::kill(rank, SIGSTOP);
    ASSERT_TRUE(job.until([&] { return std::all_of(ranks.begin(), ranks.end(), Background::stands_still); }));
    for (pid_t process : to) ::kill(process, signal);
    const auto arrived = [&](pid_t rank) { return Background::pending(rank, signal); };
    ASSERT_TRUE(job.until([&] { return std::any_of(ranks.begin(), ranks.end(), arrived); })) << output();
    for (pid_t rank : ranks) ::kill(rank, SIGCONT);
    EXPECT_EQ(job.wait(), kRetry) << output();
    EXPECT_GT(steps_done(name), before);
    EXPECT_LT(steps_done(name), kSteps) << "the run was over before the signal";
    expect_saved_at(name, steps_done(name));
  }
  /// With the rollouts of a first step there: until the rank is in its validation, which takes several times
  /// the processor time that training does.
  void wait_for_validation(Background& job, pid_t rank) const {
    const double before = Background::processor_seconds(rank);
    ASSERT_TRUE(job.until([&] { return Background::processor_seconds(rank) > before + 0.08; })) << output();
  }
  /// The processes that mpirun has started.
  std::vector<pid_t> two_ranks(Background& job) const {
    std::vector<pid_t> ranks;
    if (!job.until([&] { return (ranks = job.children()).size() == 2; }))
      throw std::runtime_error("no two ranks: " + output());
    return ranks;
  }
  void expect_same_run(const std::string& name, const std::string& placed = "") const {
    EXPECT_EQ(run_difference(program_, "whole", name), "") << placed;
  }
};

TEST_F(Signals, AStoppedRunGoesOnBitForBit) {
  ASSERT_EQ(program_.run_ranks(2, train("")), 0) << output();
  ASSERT_EQ(steps_done("whole"), kSteps);
  const std::string command = program_.mpirun(2, train("run.name=stopped"));
  {
    Background job(program_, command);
    const std::vector<pid_t> ranks = two_ranks(job);
    stop(job, "stopped", SIGTERM, ranks, ranks);  // as a launcher that ends the job
  }
  {
    Background job(program_, command);
    const std::vector<pid_t> ranks = two_ranks(job);
    stop(job, "stopped", SIGINT, ranks, {ranks.back()});  // one rank speaks for all
  }
  {
    Background job(program_, command);
    const std::vector<pid_t> ranks = two_ranks(job);
    stop(job, "stopped", SIGUSR1, ranks, ranks);  // as sbatch --signal (not every mpirun hands it on)
  }
  ASSERT_EQ(program_.run_ranks(2, train("run.name=stopped")), 0) << output();
  EXPECT_TRUE(says("resumed from")) << output();
  expect_same_run("stopped");
}

TEST_F(Signals, ControlCAndTheTimeLimitSaveALoneRun) {
  const std::string sft = train(
      "algorithm.name=sft algorithm.kl_coef=0 algorithm.entropy_coef=0 rollout.samples_per_prompt=1 "
      "rollout.prompts_per_step=64 train.samples_per_update=64 ");
  ASSERT_EQ(program_.run(sft), 0) << output();
  {
    Background job(program_, program_.temper() + " " + sft + "run.name=alone");
    stop(job, "alone", SIGINT, {job.pid()}, {-job.pid()});  // a terminal signals the whole group
  }
  ASSERT_EQ(program_.run(sft + "run.name=alone"), 0) << output();
  expect_same_run("alone");

  ASSERT_EQ(program_.run(sft + "run.name=limited run.steps=1000000 run.time_limit=1s"), kRetry) << output();
  expect_saved_at("limited", steps_done("limited"));
  const Json stop = program_.json_lines("runs/limited/events.jsonl").back();
  EXPECT_EQ(stop.at("event"), "stop") << stop.dump();
  EXPECT_EQ(stop.at("step"), steps_done("limited")) << stop.dump();
  EXPECT_EQ(stop.at("reason"), "run.time_limit") << stop.dump();
}

TEST_F(Signals, ASignalCutsAStepAndTheRunGoesOnBitForBit) {
  prepare_long_model();
  const std::string long_steps =
      "model.path=long run.steps=3 checkpoint.export_hf_every=3 rollout.max_new_tokens=200 "
      "rollout.ignore_eos=true rollout.kv_memory=50000000 run.max_policy_lag=";
  const std::string apart = " roles.rollout.ranks='\"0\"' roles.trainer.ranks='\"1\"' ";
  int number = 0;
  for (const std::string& placed :
       {std::string("0 "), std::string("1 "), "0" + apart,
        std::string("0 rollout.dynamic_sampling_rounds=2 "), std::string("0 roles.trainer.tp=2 "),
        std::string("1 roles.trainer.pp=2 ")}) {
    const std::string command = train(long_steps + placed);
    for (const char* run : {"whole", "cut"})
      std::filesystem::remove_all(program_.path(std::string("runs/") + run));
    ASSERT_EQ(program_.run_ranks(2, command), 0) << output();
    int cuts = 0, code = kRetry, victim = number++ % 2;
    for (; code == kRetry && cuts < 1; victim = 1 - victim) {
      Background job(program_, program_.mpirun(2, command + "run.name=cut"));
      const std::string log = "runs/cut/logs/rank-0001.log";
      const pid_t process = job.rank(victim);
      const auto starts = [&] { return exists(log) ? times_in(program_.read(log), "updates in all") : 0; };
      const int64_t before = starts();
      job.until([&] { return starts() > before; });
      std::this_thread::sleep_for(std::chrono::milliseconds(60));  // into a step
      ::kill(process, SIGHUP);
      code = job.wait();
      if (code == 128 + SIGHUP) code = kRetry;  // before there was anything to save
      if (code == kRetry && says("SIGHUP: saved step")) ++cuts;
    }
    EXPECT_GT(cuts, 0) << placed;
    if (code != 0) code = program_.run_ranks(2, command + "run.name=cut");
    EXPECT_EQ(code, 0) << output();
    expect_same_run("cut", placed);
    for (const Json& step : program_.metrics("cut"))  // of both parts of a step
      EXPECT_GT(step.at("perf/rollout_idle_share"), -1e-9) << placed << step;
  }
}

/// With a lag the trainer is ahead of the weights that others generate with, where these are the slower ones:
/// they are in the checkpoint. The run goes on with them in another placement, too, where ranks train and
/// generate.
TEST_F(Signals, GenerationWithOlderWeightsIsCutToo) {
  prepare_long_model();
  for (const int lag : {1, 2}) {
    const std::string command = train(fmt::format(
        "model.path=long run.steps=8 checkpoint.export_hf_every=8 rollout.max_new_tokens=150 "
        "rollout.max_running_sequences=1 "
        "rollout.ignore_eos=true rollout.kv_memory=50000000 algorithm.kl_coef=0 roles.rollout.ranks='\"0\"' "
        "roles.trainer.ranks='\"1\"' run.max_policy_lag={} ",
        lag));
    for (const char* run : {"whole", "cut"})
      std::filesystem::remove_all(program_.path(std::string("runs/") + run));
    ASSERT_EQ(program_.run_ranks(2, command), 0) << output();
    int cuts = 0;
    for (int start = 0; start < 6 && cuts == 0; ++start) {
      const int64_t before = steps_done("cut");
      Background job(program_, program_.mpirun(2, command + "run.name=cut"));
      const pid_t generates = job.rank(0), told = job.rank(start % 2);
      const auto slowed = [&] {  // on any machine the trainer waits
        ::kill(generates, SIGSTOP);
        std::this_thread::sleep_for(std::chrono::milliseconds(8));
        ::kill(generates, SIGCONT);
      };
      const auto further = [&] { return slowed(), steps_done("cut") > before; };
      ASSERT_TRUE(job.until(further)) << output();
      int pauses = 0;
      ASSERT_TRUE(job.until([&] { return slowed(), ++pauses > 10 * start; })) << output();
      ::kill(told, SIGUSR1);
      ASSERT_EQ(job.wait(), kRetry) << output();
      const int64_t step = steps_done("cut");
      cuts += program_.read(checkpoint("cut", step) + "/manifest.json").find("\"older/step-") !=
              std::string::npos;
    }
    EXPECT_GT(cuts, 0) << "lag " << lag;
    const char* placed = lag == 1 ? "" : "roles.rollout.ranks='\"0-1\"' ";
    ASSERT_EQ(program_.run_ranks(2, command + placed + "run.name=cut"), 0) << output();
    expect_same_run("cut", fmt::format("lag {}", lag));
  }
}

/// The step is trained then: it has its line when the validation was made.
TEST_F(Signals, AStopCutsAValidation) {
  prepare_long_model();
  for (const int steps : {2, 1}) {  // the last one, too
    const std::string command = train(
        fmt::format("model.path=long run.steps={0} checkpoint.export_hf_every={0} validation.data=data.jsonl "
                    "validation.every=1 validation.max_prompts=4 validation.rollout.max_new_tokens=2000 "
                    "rollout.ignore_eos=true "
                    "rollout.kv_memory=50000000 ",
                    steps));
    for (const char* run : {"whole", "cut"})
      std::filesystem::remove_all(program_.path(std::string("runs/") + run));
    ASSERT_EQ(program_.run_ranks(2, command), 0) << output();
    for (int start = 0; start < 2; ++start) {  // the second cuts the one that is made after all
      Background job(program_, program_.mpirun(2, command + "run.name=cut"));
      const char* sign = start == 0 ? "" : "resumed from";
      ASSERT_TRUE(job.until([&] { return exists(rollout_file("cut", 1)) && says(sign); })) << output();
      if (start == 0) wait_for_validation(job, job.rank(1));
      ::kill(job.rank(1), SIGTERM);
      ASSERT_EQ(job.wait(), kRetry) << output();
      EXPECT_TRUE(says("SIGTERM: saved step 1")) << output();
      EXPECT_EQ(steps_done("cut"), 0) << "it waited for the validation";
    }
    ASSERT_EQ(program_.run_ranks(2, command + "run.name=cut"), 0) << output();
    expect_same_run("cut", fmt::format("{} steps", steps));
  }
}

/// What scores a step waits for none that nobody generates.
TEST_F(Signals, AStopCutsTheValidationThatReachesTheGoal) {
  prepare_long_model();
  const std::string goal =
      "model.path=long run.steps=3 algorithm.kl_coef=0.1 validation.data=data.jsonl validation.every=1 "
      "validation.max_prompts=4 validation.rollout.max_new_tokens=2000 rollout.ignore_eos=true "
      "rollout.kv_memory=50000000 run.stop_when.metric=val/data/response_length/mean "
      "run.stop_when.at_least=1 ";
  for (const char* placed : {"", "roles.rollout.ranks='\"0\"' roles.trainer.ranks='\"1\"' "}) {
    for (const char* run : {"whole", "cut"})
      std::filesystem::remove_all(program_.path(std::string("runs/") + run));
    const std::string command = train(goal + placed);
    ASSERT_EQ(program_.run_ranks(2, command), 0) << output();
    EXPECT_TRUE(says("the run ends after step 1")) << output();
    {
      Background job(program_, program_.mpirun(2, command + "run.name=cut"));
      ASSERT_TRUE(job.until([&] { return exists(rollout_file("cut", 1)); })) << output();
      wait_for_validation(job, job.rank(1));
      ::kill(job.rank(1), SIGTERM);
      ASSERT_EQ(job.wait(), kRetry) << output();
      EXPECT_EQ(steps_done("cut"), 0) << "it waited for the validation";
    }
    ASSERT_EQ(program_.run_ranks(2, command + "run.name=cut"), 0) << output();
    EXPECT_TRUE(says("the run ends after step 1")) << output();
    expect_same_run("cut", placed);
  }
}

/// It answers once there is a file `fast`.
const char* kSlowReward = R"sh(
while IFS= read -r line; do
  [ -e fast ] || { touch asked; sleep 1000; }
  id=${line##*\"id\":}; id=${id%\}}
  response=${line#*\"response\":\"}; response=${response%%\",\"answer\"*}
  echo "{\"id\":$id,\"reward\":${#response}}"
done
)sh";

TEST_F(Signals, AStopDoesNotWaitForRewardPrograms) {
  program_.write("reward.sh", kSlowReward);
  const std::string command = train(
      "run.steps=2 checkpoint.export_hf_every=2 reward.functions='[{name = \"command\", "
      "argv = [\"sh\", \"reward.sh\"], limit_seconds = 1000}]' ");
  {
    Background job(program_, program_.mpirun(2, command + "run.name=cut"));
    ASSERT_TRUE(job.until([&] { return exists("asked"); })) << output();
    ::kill(two_ranks(job).back(), SIGTERM);
    EXPECT_EQ(job.wait(), kRetry) << output();
    EXPECT_TRUE(says("SIGTERM: saved step 0")) << output();
  }
  program_.write("fast", "");
  ASSERT_EQ(program_.run_ranks(2, command), 0) << output();
  ASSERT_EQ(program_.run_ranks(2, command + "run.name=cut"), 0) << output();
  EXPECT_TRUE(says("resumed from")) << output();
  expect_same_run("cut");
}

/// One step takes minutes.
const char* kSlow =
    "model.path=long run.steps=2 rollout.max_new_tokens=16000 rollout.ignore_eos=true "
    "rollout.prompts_per_step=16 rollout.samples_per_prompt=16 rollout.kv_memory=50000000 run.name=";

TEST_F(Signals, TheFirstStepOfAResumedRunIsCutToo) {
  prepare_long_model();
  ASSERT_EQ(program_.run(train("model.path=long run.steps=1 run.name=resumed")), 0) << output();
  Background job(program_, program_.temper() + " " + train(kSlow + std::string("resumed")));
  ASSERT_TRUE(job.until([&] { return says("resumed from"); })) << output();
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), kRetry) << output();
  EXPECT_EQ(steps_done("resumed"), 1) << "it waited for the end of the step";
  EXPECT_TRUE(says("SIGTERM: saved step 1")) << output();
  EXPECT_NE(program_.read(checkpoint("resumed", 1) + "/manifest.json").find("open/step-000002"),
            std::string::npos);
}

/// Also where a library has taken the signal before main.
TEST_F(Signals, UnderNohupAHangupIsIgnored) {
  const std::string shim =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hangup_shim.so").string();
  for (const std::string name : {"alone", "taken"}) {
    const auto reaches = [&](Background& job, int64_t step) {
      return job.until([&] { return steps_done(name) >= step; });
    };
    const std::string before = name == "taken" ? "LD_PRELOAD=" + shim + " " : "";
    Background job(program_, "nohup env " + before + program_.temper() + " " +
                                 train("run.steps=1000000 run.name=" + name));
    ASSERT_TRUE(reaches(job, 1)) << output();
    ::kill(job.pid(), SIGHUP);
    EXPECT_TRUE(reaches(job, steps_done(name) + 3)) << output();
    ::kill(job.pid(), SIGTERM);
    EXPECT_EQ(job.wait(), kRetry) << output();
    EXPECT_TRUE(says("SIGTERM: saved step")) << output();
  }
}

/// mpirun may never end when a rank dies while it connects. The other rank stands still before it gets there.
TEST_F(Signals, WhileARankConnectsTheyWait) {
  constexpr int kStarts = 20;  // a rank that is stopped late has connected, and the other one waits no more
  bool held = false;
  for (int i = 0; i < kStarts && !held; ++i) {
    Background job(program_, program_.mpirun(2, train("run.name=connecting")));
    const pid_t late = job.rank(0), rank = job.rank(1);
    ::kill(late, SIGSTOP);
    job.until([&] { return Background::stands_still(late); });
    if (!Background::before_mpi(late, SIGHUP)) continue;
    const Stopwatch since;
    job.until([&] { return since.seconds() > 2 || (held = Background::blocked(rank, SIGHUP)); });
    if (!held) continue;
    ::kill(rank, SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_TRUE(Background::pending(rank, SIGHUP)) << output();
    ::kill(late, SIGCONT);
    EXPECT_EQ(job.wait(), 128 + SIGHUP) << output();
    EXPECT_TRUE(says("temper: SIGHUP before there was anything to save: ended")) << output();
    EXPECT_FALSE(job.was_stuck()) << output();
    EXPECT_FALSE(exists("runs/connecting/checkpoints"));
  }
  EXPECT_TRUE(held) << "the signal is not blocked in any of " << kStarts << " starts";
}

/// `pkill -USR1 -f` reaches mpirun, too, which hands the signal on.
TEST_F(Signals, TheSameSignalTwiceWithinAMomentIsOne) {
  const auto twice = [&](Background& job, const std::string& name, const std::vector<pid_t>& to) {
    ASSERT_TRUE(job.until([&] { return steps_done(name) >= 2; })) << output();
    for (const pid_t process : to) ::kill(process, SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const pid_t process : to) ::kill(process, SIGUSR1);
    EXPECT_EQ(job.wait(), kRetry) << output();
    EXPECT_TRUE(says("SIGUSR1: saved step")) << output();
  };
  {
    Background job(program_, program_.temper() + " " + train("run.steps=100000 run.name=alone"));
    twice(job, "alone", {job.pid()});
  }
  Background job(program_, program_.mpirun(2, train("run.steps=100000 run.name=ranks")));
  twice(job, "ranks", two_ranks(job));
}

/// The second signal does not wait for the first one's save.
TEST_F(Signals, ASecondSignalEndsTheRunAtOnce) {
  prepare_long_model();
  const std::string slow = train(kSlow);
  // Handlers alone would not tell: some builds of Open MPI bring their own for a run without mpirun.
  const auto at_work = [&](const std::string& name, int rank) {
    const std::string log = fmt::format("runs/{}/logs/rank-{:04d}.log", name, rank);
    return exists(log) && program_.read(log).find("updates in all") != std::string::npos;
  };
  // The system may hand over either first of two signals that wait for a busy process.
  const auto expect_second = [&](int code) {
    EXPECT_TRUE(code == 128 + SIGINT || code == 128 + SIGTERM) << code << "\n" << output();
  };
  {
    Background job(program_, program_.temper() + " " + slow + "alone");
    ASSERT_TRUE(job.until([&] { return at_work("alone", 0); })) << output();
    ::kill(job.pid(), SIGTERM);
    ::kill(job.pid(), SIGINT);
    expect_second(job.wait());
  }
  {
    Background job(program_, program_.mpirun(2, slow + "ranks"));
    ASSERT_TRUE(job.until([&] { return at_work("ranks", 0) && at_work("ranks", 1); })) << output();
    const pid_t last = two_ranks(job).back();
    ::kill(last, SIGTERM);
    ::kill(last, SIGINT);
    expect_second(job.wait());
  }
  for (const char* name : {"alone", "ranks"}) {
    EXPECT_EQ(steps_done(name), 0) << "it waited for the end of the step";
    EXPECT_FALSE(exists(fmt::format("runs/{}/checkpoints", name)));
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
