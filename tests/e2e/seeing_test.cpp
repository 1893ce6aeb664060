// What a person sees of a run, through a pipe (as under mpirun) and on a terminal: progress of long steps,
// step lines, checkpoints, samples, and the warning that nothing is learned.

#include <regex>

#include "src/run/record/metrics/left_out.h"
#include "src/run/record/metrics/no_signal.h"
#include "src/run/report/metric_docs.h"
#include "tests/support/run_fixture.h"
#include "tests/support/terminal.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "seen"
run.steps = 2
rollout.prompts_per_step = 16
rollout.samples_per_prompt = 4
rollout.max_prompt_tokens = 64
rollout.max_new_tokens = 48
rollout.ignore_eos = true
train.max_tokens_per_microbatch = 128
checkpoint.every = 1
log.progress_seconds = 0.01
validation.data = "data.jsonl"
validation.every = 1
validation.samples_per_prompt = 4
validation.rollout.max_new_tokens = 24
)";

class Seeing : public RunFixture {
 protected:
  void SetUp() override { prepare(kConfig, sums(24)); }
  static size_t count(const std::string& text, const std::string& what) {
    const std::regex pattern(what);
    return static_cast<size_t>(
        std::distance(std::sregex_iterator(text.begin(), text.end(), pattern), std::sregex_iterator()));
  }
};

TEST_F(Seeing, ALongStepTellsThroughAPipeWhatItIsAt) {
  ASSERT_EQ(program_.run_ranks(2, "train run.toml"), 0) << output();
  const std::string rate = "[0-9.]+[kMG]? tok/s\n";
  EXPECT_GT(count(output(), "step [12]: generating, [0-9]+/16 prompts, " + rate), 0u) << output();
  EXPECT_GT(count(output(), "step [12]: training, [0-9]+/64 samples, " + rate), 0u) << output();
  EXPECT_GT(count(output(), "step [12]: validation, [0-9]+/24 prompts, " + rate), 0u) << output();
  EXPECT_EQ(count(output(), "step [12]/2  score [^\n]*  [0-9.]+[kMG]? tok/s  [0-9]+[hms0-9]* left\n"), 2u)
      << output();
  for (const int step : {1, 2})
    EXPECT_EQ(count(output(), "saved [^ ]*" + step_name(step) + "\n"), 1u) << step;
  EXPECT_FALSE(says("\033")) << "a pipe gets no control sequences";
}

TEST_F(Seeing, NoLineOfATerminalIsBroken) {
  const Seen seen = run_on_terminal(
      program_, program_.temper() + " train run.toml run.steps=3 log.samples_per_step=0 log.level=info");
  ASSERT_EQ(seen.code, 0) << seen.stderr_bytes;
  size_t steps = 0, progress = 0;
  for (const std::string& line : lines_seen(seen.stderr_bytes)) {
    if (!line.starts_with("step ")) continue;
    EXPECT_LE(line.size(), 79u) << line;
    const bool ends = line.find(" left") != std::string::npos;
    EXPECT_EQ(line.find("step ", 5), std::string::npos) << "two in one line: " << line;
    ends ? ++steps : ++progress;
    for (const char* part : {"score", "val/data ", "tok/s"})
      EXPECT_TRUE(!ends || line.find(part) != std::string::npos) << part << ": " << line;
  }
  EXPECT_EQ(steps, 3u) << seen.stderr_bytes;
  EXPECT_GT(progress, 0u) << seen.stderr_bytes;
}

TEST_F(Seeing, SilenceCanBeChosen) {
  ASSERT_EQ(program_.run("train run.toml run.steps=1 log.progress_seconds=0 log.samples_per_step=0"), 0)
      << output();
  EXPECT_FALSE(says("generating")) << output();
  EXPECT_FALSE(says("sample of")) << output();
}

TEST_F(Seeing, SamplesOfEachStepAreLogged) {
  ASSERT_EQ(program_.run("train run.toml log.samples_per_step=3"), 0) << output();
  EXPECT_EQ(count(output(),
                  "sample of step [12]: \"[^\n]*plus[^\n]*\" -> \"[^\n]*\", answer \"[0-9]+\", "
                  "reward [^\n]*\n"),
            6u)
      << output();
}

TEST_F(Seeing, StepsWithoutSignalAreWarnedAboutOnce) {
  ASSERT_EQ(
      program_.run("train run.toml run.steps=7 rollout.max_new_tokens=4 reward.functions=[\\\"exact\\\"] "
                   "validation.every=0"),
      0)
      << output();
  EXPECT_EQ(count(output(), "no signal in steps 1 to 5: all samples"), 1u) << output();
  EXPECT_EQ(count(output(), "no signal"), 1u) << output();
  for (const Json& line : program_.metrics("seen")) EXPECT_EQ(line.at("rollout/no_signal_share"), 1);
}

TEST_F(Seeing, HelpDescribesEveryMetricOfARun) {
  ASSERT_EQ(program_.run("train run.toml algorithm.kl_coef=0.1 validation.samples_per_prompt=2"), 0)
      << output();
  const std::vector<Json> lines = program_.metrics("seen");
  for (const Json& line : lines)
    for (const auto& [key, value] : line.items())
      EXPECT_TRUE(std::any_of(metric_docs().begin(), metric_docs().end(), [&](const MetricDoc& doc) {
        return describes(doc, key);
      })) << key;
}

TEST_F(Seeing, RolloutsMayBeThinnedOutAndPacked) {
  const std::string train = "train run.toml validation.every=0 rollout.prompts_per_step=4 ";
  ASSERT_EQ(program_.run(train + "run.name=plain run.steps=3"), 0) << output();
  ASSERT_EQ(program_.run(train + "run.name=none run.steps=3 rollout.dump_every=0"), 0) << output();
  EXPECT_FALSE(exists("runs/none/rollouts"));
  ASSERT_EQ(
      program_.run(train + "run.name=packed run.steps=3 rollout.dump_every=2 rollout.dump_compress=zstd"), 0)
      << output();
  EXPECT_EQ(list_directory(program_.path("runs/packed/rollouts")),
            std::vector<std::string>{"step-000002.jsonl.zst"});
  EXPECT_EQ(metrics("packed"), metrics("plain"));
  const std::string packed = "runs/packed/rollouts/step-000002.jsonl.zst";
  EXPECT_LT(program_.read(packed).size(), rollouts("plain", 2).size() / 2);
  const std::string replay = train + "--replay ";
  ASSERT_EQ(program_.run(replay + packed + " run.name=from-packed"), 0) << output();
  ASSERT_EQ(program_.run(replay + rollout_file("plain", 2) + " run.name=from-plain"), 0) << output();
  EXPECT_EQ(metrics("from-packed"), metrics("from-plain"));
  program_.write("cut.zst", program_.read(packed).substr(0, 900));
  EXPECT_EQ(program_.run(replay + "cut.zst run.name=from-cut"), 65) << output();
  EXPECT_TRUE(says("cut.zst")) << output();
}

TEST(NoSignal, CountsStepsInARowOfEitherKind) {
  const std::map<std::string, double> alike{{"rollout/no_signal_share", 1}, {"actor/grad_norm", 0.1}},
      still{{"train/grad_norm", 0}}, fine{{"rollout/no_signal_share", 0.99}, {"actor/grad_norm", 0.1}};
  NoSignal watched;
  for (int64_t step = 1; step <= 4; ++step) EXPECT_EQ(watched.look(step, alike), "");
  EXPECT_EQ(watched.look(5, fine), "");
  for (int64_t step = 6; step <= 9; ++step) EXPECT_EQ(watched.look(step, still), "");
  EXPECT_NE(watched.look(10, still).find("steps 6 to 10: the gradient is zero"), std::string::npos);
  for (int64_t step = 11; step <= 20; ++step) EXPECT_EQ(watched.look(step, alike), "") << "only once";
}

TEST(LeftOut, IsToldOnceWithItsCount) {
  const std::map<std::string, double> fine{{"rollout/sessions_done", 4}, {"rollout/sessions_no_reward", 0}},
      some{{"rollout/sessions_done", 4}, {"rollout/sessions_died", 1}, {"rollout/sessions_no_reward", 3}};
  LeftOut watched(EndReason::no_reward), asked(EndReason::no_request);
  EXPECT_EQ(watched.look(1, {}), "") << "no programs";
  EXPECT_EQ(watched.look(2, fine), "");
  const std::string told = watched.look(3, some);
  for (const char* text : {"step 3: 3 of 8 sessions", "{\"reward\": NUMBER}", "reward.functions"})
    EXPECT_NE(told.find(text), std::string::npos) << told;
  EXPECT_EQ(watched.look(4, some), "") << "only once";
  EXPECT_EQ(asked.look(3, some), "");
  const std::string unasked =
      asked.look(5, {{"rollout/sessions_done", 3}, {"rollout/sessions_no_request", 1}});
  for (const char* text :
       {"step 5: 1 of 4 sessions ended without a request", "sessions_no_request", "stderr"})
    EXPECT_NE(unasked.find(text), std::string::npos) << unasked;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
