// A run whose rewards come from programs that are late, die and talk nonsense: it ends, every failure is
// counted and leaves a response without a reward, replay and resume repeat its bits, and nobody is left
// behind when it is killed.

#include <fstream>
#include <iterator>
#include <set>

#include "tests/support/background.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

constexpr int kSteps = 16;

const char* kConfig = R"(
run.name = "whole"
run.steps = 16
rollout.prompts_per_step = 3
rollout.samples_per_prompt = 4
rollout.max_new_tokens = 6
checkpoint.every = 8
checkpoint.keep = 5
checkpoint.export_hf_every = 16
reward.functions = [{name = "command", argv = ["sh", "reward.sh"], workers = 2, limit_seconds = 0.4}]
)";

/// One call in 20 of a program fails, in turn in another way; the reward is the length of the response.
const char* kProgram = R"sh(
echo $$ >> pids
n=0
while IFS= read -r line; do
  n=$((n + 1))
  id=${line##*\"id\":}; id=${id%\}}
  response=${line#*\"response\":\"}; response=${response%%\",\"answer\"*}
  if [ $n -eq 20 ]; then
    case $(($(wc -l < pids) % 3)) in 0) sleep 1000 ;; 1) exit 1 ;; 2) id=1 ;; esac
  fi
  echo "{\"id\":$id,\"reward\":${#response},\"parts\":{\"length\":${#response}}}"
done
)sh";

class CommandReward : public RunFixture {
 protected:
  void SetUp() override {
    program_.write("reward.sh", kProgram);
    prepare(kConfig, sums(17));
  }
  std::string train(const std::string& overrides) const { return "train run.toml " + overrides; }
  std::vector<Json> responses(const std::string& run, int64_t step) const {
    return program_.json_lines(rollout_file(run, step));
  }
  std::vector<pid_t> pids() const {
    std::ifstream file(program_.path("pids"));
    return {std::istream_iterator<pid_t>(file), {}};
  }
};

TEST_F(CommandReward, FailuresAreCountedAndTheRunCanBeRepeated) {
  ASSERT_EQ(program_.run(train("")), 0) << output();
  EXPECT_TRUE(says("the reward program sh reward.sh ")) << output();
  double failures = 0;
  const std::vector<Json> metrics_of = program_.metrics("whole");
  ASSERT_EQ(metrics_of.size(), size_t{kSteps});
  for (const Json& line : metrics_of) {
    const auto number = [&](const std::string& key) { return line.value(key, 0.0); };
    const double failed =
        number("perf/reward_late") + number("perf/reward_died") + number("perf/reward_nonsense");
    double excluded = 0;
    for (const Json& response : responses("whole", line.at("step").get<int64_t>())) {
      const bool none = response.at("reward").is_null();
      excluded += none;
      EXPECT_EQ(response.at("raw_reward").is_null(), none);
      EXPECT_EQ(response.at("reward_parts").contains("command"), !none);
      const auto mask = response.at("response_mask").get<std::vector<int>>();
      if (none) {
        EXPECT_EQ(std::count(mask.begin(), mask.end(), 1), 0);
        EXPECT_EQ(response.at("advantage"), 0.0);
      }
    }
    EXPECT_EQ(number("perf/reward_calls"), 12);
    EXPECT_EQ(failed, excluded) << line.dump();
    EXPECT_EQ(number("reward/excluded"), excluded);
    EXPECT_EQ(line.at("reward/command/length/mean"), line.at("critic/rewards/mean"));
    failures += failed;
  }
  EXPECT_GE(failures, 3);

  std::string files = "--replay";
  for (int64_t step = 1; step <= kSteps; ++step) files += " " + rollout_file("whole", step);
  ASSERT_EQ(program_.run(train(files + " run.name=replayed")), 0) << output();
  const std::vector<Json> replayed = program_.metrics("replayed");
  ASSERT_EQ(replayed.size(), size_t{kSteps});
  for (size_t i = 0; i < replayed.size(); ++i)
    for (const auto& [key, value] : metrics_of[i].items()) {
      if (key.starts_with("actor/") || key.starts_with("critic/") || key.starts_with("reward/")) {
        EXPECT_EQ(replayed[i].at(key), value) << key << " of step " << i + 1;
      }
    }

  copy_until("whole", "again", kSteps / 2, kSteps);  // as if it had been killed before its second checkpoint
  const size_t programs = pids().size();
  ASSERT_EQ(program_.run(train("run.name=again")), 0) << output();
  EXPECT_TRUE(says("resumed from")) << output();
  EXPECT_EQ(metrics("again"), metrics("whole"));
  EXPECT_EQ(exported_weights("again", kSteps), exported_weights("whole", kSteps));
  EXPECT_EQ(pids().size(), programs) << "every verdict was on record";
}

TEST_F(CommandReward, TwoRanksAndValidationAndEval) {
  const std::string validated = "validation.data=data.jsonl validation.every=4 run.steps=4 ";
  ASSERT_EQ(program_.run_ranks(2, train(validated + "run.max_policy_lag=1")), 0) << output();
  EXPECT_TRUE(program_.metrics("whole").back().contains("val/data/score/mean"));
  ASSERT_EQ(program_.run("eval run.toml validation.data=data.jsonl"), 0) << output();
  EXPECT_TRUE(says("val/data/score/mean")) << output();
}

TEST_F(CommandReward, NobodyIsLeftBehindWhenARankIsKilled) {
  {
    Background job(program_, program_.temper() + " " + train("run.steps=1000000"));
    ASSERT_TRUE(job.until([&] { return pids().size() >= 3; })) << output();
    ::kill(job.pid(), SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
  }
  const std::vector<pid_t> programs = pids();
  for (const pid_t pid : programs) {
    for (int i = 0; i < 2000 && ::kill(pid, 0) == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_NE(::kill(pid, 0), 0) << pid;
  }
}

/// A stop text whose tokens are trained is what such a reward looks for: with rollout.include_stop_text it is
/// in the response, for the program and in the file.
TEST_F(CommandReward, StopTextsAreSeenWhereTheyAreKept) {
  program_.write("reward.sh", R"sh(
while IFS= read -r line; do
  id=${line##*\"id\":}; id=${id%\}}
  case $line in *'e","answer":'*) reward=1 ;; *) reward=0 ;; esac
  echo "{\"id\":$id,\"reward\":$reward}"
done
)sh");
  const std::string stopped =
      "run.steps=1 rollout.max_new_tokens=60 rollout.ignore_eos=true 'rollout.stop=[\"e\"]' "
      "'reward.functions=[{name=\"command\",argv=[\"sh\",\"reward.sh\"]}]' checkpoint.export_hf_every=0 ";
  ASSERT_EQ(program_.run(train(stopped + "run.name=cut")), 0) << output();
  ASSERT_EQ(program_.run(train(stopped + "run.name=kept rollout.include_stop_text=true")), 0) << output();
  const std::vector<Json> cut = responses("cut", 1), kept = responses("kept", 1);
  ASSERT_EQ(kept.size(), 12u);
  ASSERT_EQ(cut.size(), kept.size());
  int stops = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    const bool stop = kept[i].at("finish_reason") == "stop";
    const std::string text = cut[i].at("response");
    stops += stop;
    EXPECT_EQ(kept[i].at("response_tokens"), cut[i].at("response_tokens")) << "the same is trained";
    EXPECT_EQ(kept[i].at("response"), text + (stop ? "e" : "")) << i;
    EXPECT_EQ(kept[i].at("raw_reward"), stop ? 1 : 0) << i;
    EXPECT_EQ(text.find('e'), std::string::npos) << text;
    EXPECT_EQ(cut[i].at("raw_reward"), 0) << i;
  }
  EXPECT_GT(stops, 3);
}

/// What a program starts takes no part in the run: it may be a job of MPI, whatever has started the run.
TEST_F(CommandReward, ProgramsMayUseMpi) {
  const std::string score = program_.mpirun(1, "score --model model --input ids.jsonl --device cpu");
  program_.write("ids.jsonl", "{\"tokens\":[7,8,9]}\n");
  program_.write("reward.sh", R"sh(
export OMPI_MCA_orte_tmpdir_base=$PWD/mpi$$  # launchers that share a folder remove it for each other
mkdir -p mpi$$
while IFS= read -r line; do
  id=${line##*\"id\":}; id=${id%\}}
  sh score.sh < /dev/null > /dev/null && reward=1 || reward=0
  echo "{\"id\":$id,\"reward\":$reward}"
done
)sh");
  program_.write("score.sh", score);
  for (const int ranks : {1, 2}) {
    const std::string run = fmt::format("ranks{}", ranks);
    const std::string start = train(
        "run.steps=1 rollout.prompts_per_step=1 rollout.samples_per_prompt=2 train.samples_per_update=2 "
        "'reward.functions=[{name=\"command\",argv=[\"sh\",\"reward.sh\"],workers=2,limit_seconds=60}]' "
        "checkpoint.export_hf_every=0 run.name=" +
        run);
    ASSERT_EQ(program_.run_ranks(ranks, start), 0) << output();
    const std::vector<Json> answered = responses(run, 1);
    EXPECT_EQ(answered.size(), 2u) << run;
    for (const Json& response : answered) EXPECT_EQ(response.at("raw_reward"), 1) << run << ": " << output();
  }
}

TEST_F(CommandReward, CheckAsksOnce) {
  ASSERT_EQ(program_.run("check run.toml --json"), 0) << output();
  const Json trial = program_.json_lines("output.log").back().at("reward_trial");
  const size_t length = trial.at("response").get<std::string>().size();
  EXPECT_GT(length, 0u) << "the answer of the first prompt";
  EXPECT_EQ(trial.at("reward"), length) << trial.dump();
  EXPECT_EQ(trial.at("parts").at("command/length"), length);
  EXPECT_EQ(pids().size(), 1u);
  program_.write("reward.sh", "read -r line; echo broken");
  EXPECT_EQ(program_.run("check run.toml"), static_cast<int>(Exit::usage));
  EXPECT_TRUE(says("no line of JSON")) << output();
  EXPECT_TRUE(says("reward.functions is refused")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
