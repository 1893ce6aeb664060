// Short trials of a supervised run: epochs instead of steps, keys that a short run has no use for, and the
// loss on held-out lines, whose bits no layout, packing or verb changes.

#include <cmath>

#include "src/io/checkpoint/checkpoint.h"
#include "tests/support/background.h"
#include "tests/support/run_fixture.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

constexpr const char* kConfig = R"(
run.name = "run"
run.steps = 1
algorithm.name = "sft"
train.samples_per_update = 16
)";
/// Four layers, and heads that two ranks share in any way.
constexpr const char* kDeep = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400, "max_position_embeddings": 64,
  "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2})";

class ShortTrial : public RunFixture {
 protected:
  void SetUp() override {
    prepare(kConfig, sums(40));
    std::string config = program_.read("run.toml");
    const size_t rewards = config.find("reward.functions");
    program_.write("run.toml", config.erase(rewards, config.find('\n', rewards) - rewards));
  }

  /// The line of config.toml in the run folder, and of the config in a checkpoint.
  void expect_steps(const std::string& run, int64_t steps, const std::string& origin) const {
    const std::string line = fmt::format("\nsteps = {}  # {}\n", steps, origin);
    EXPECT_NE(program_.read("runs/" + run + "/config.toml").find(line), std::string::npos)
        << line << program_.read("runs/" + run + "/config.toml");
    const std::string manifest = program_.read(checkpoint(run, steps) + "/manifest.json");
    EXPECT_NE(manifest.find(fmt::format("\\nsteps = {}  # {}\\n", steps, origin)), std::string::npos);
    EXPECT_EQ(steps_done(run), steps);
  }
  Json eval(int ranks, const std::string& more) const {
    const std::string line = "eval run.toml " + more + " 2> /dev/null";
    EXPECT_EQ(ranks == 1 ? program_.run(line) : program_.run_ranks(ranks, line), 0) << output();
    return Json::parse(output());
  }
};

TEST_F(ShortTrial, EpochsAreCountedInStepsAndGoOn) {
  ASSERT_EQ(program_.run("train run.toml run.epochs=1"), 0) << output();
  expect_steps("run", 3, "run.epochs = 1 (command line) of 40 lines, 16 a step");
  const std::string before = metrics("run");
  ASSERT_EQ(program_.run("train run.toml run.epochs=1"), 0) << output();
  EXPECT_TRUE(says("nothing is left to do")) << output();
  EXPECT_FALSE(says("changed since")) << output();
  EXPECT_EQ(metrics("run"), before);
  ASSERT_EQ(program_.run_ranks(2, "train run.toml run.epochs=1.5"), 0) << output();
  EXPECT_TRUE(says("changed since: run.steps 3 -> 4")) << output();
  expect_steps("run", 4, "run.epochs = 1.5 (command line) of 40 lines, 16 a step");
  // What the run wrote down is the same run.
  ASSERT_EQ(program_.run("train runs/run/config.toml"), 0) << output();
  EXPECT_TRUE(says("nothing is left to do")) << output();
}

TEST_F(ShortTrial, AnEpochHasTheWeightedLinesThatFit) {
  std::string data = sums(30);
  for (int i = 0; i < 10; ++i)
    data +=
        "{\"prompt\":\"one two three four five six seven eight nine ten, how many is that in all?\","
        "\"response\":\"10\"}\n";
  program_.write("long.jsonl", data);
  ASSERT_EQ(program_.run("train run.toml run.epochs=1 data.train=long.jsonl data.overlong=drop "
                         "rollout.max_prompt_tokens=16"),
            0)
      << output();
  expect_steps("run", 2, "run.epochs = 1 (command line) of 30 lines, 16 a step");
  const auto steps_of = [&](const std::string& more) {
    EXPECT_EQ(program_.run("check run.toml --json " + more + " 2> /dev/null"), 0) << output();
    return Json::parse(output()).at("steps").get<int64_t>();
  };
  EXPECT_EQ(steps_of("run.epochs=2"), 5) << "80 lines, 16 a step";
  EXPECT_EQ(steps_of("run.epochs=2 'data.train=[{path=\"data.jsonl\",weight=0.5}, \"long.jsonl\"]'"), 8)
      << "2 x (20 + 40)";
  EXPECT_EQ(steps_of("run.epochs=0.1"), 1);
  const std::string grpo =
      "algorithm.name=grpo reward.functions=exact rollout.prompts_per_step=8 rollout.samples_per_prompt=2 "
      "rollout.max_new_tokens=8 ";
  EXPECT_EQ(steps_of(grpo + "run.epochs=3"), 15) << "120 prompts, 8 a step";
  EXPECT_EQ(steps_of("run.epochs=1 data.overlong=drop"), 3);
  EXPECT_NE(program_.run("check run.toml run.epochs=1 data.train=nowhere.jsonl --ranks 1"), 70) << output();
  EXPECT_TRUE(says("its steps are not known")) << output();
  EXPECT_EQ(program_.run("train run.toml run.name=too-long run.epochs=1e9 train.samples_per_update=1 "
                         "'data.train=[{path=\"data.jsonl\",weight=1e6}]'"),
            64);
  EXPECT_TRUE(says("run.epochs makes a run too long")) << output();
}

TEST_F(ShortTrial, WhatTheRunIsTooShortForIsSaid) {
  program_.write("held.jsonl", sums(3));
  ASSERT_EQ(program_.run("train run.toml optimizer.warmup_steps=100 'profile.steps=\"3-5\"' "
                         "validation.data=held.jsonl validation.every=50"),
            0)
      << output();
  for (const char* key : {"optimizer.warmup_steps = 100", "profile.steps = \"3-5\"", "validation.every = 50"})
    EXPECT_TRUE(says(key)) << key << "\n" << output();
  EXPECT_TRUE(program_.metrics("run").at(0).contains("val/held/loss")) << "after the last step";
}

/// Weights that do not move have one loss: of one rank, and of any that share model, tokens or lines.
TEST_F(ShortTrial, HeldOutLossHasTheSameBitsInEveryLayout) {
  ASSERT_EQ(program_.init_model("deep", kDeep), 0) << output();
  program_.write("held.jsonl", sums(23));
  const std::string keys =
      "train run.toml model.path=deep optimizer.lr=0 validation.data=held.jsonl validation.every=1 ";
  struct Layout {
    const char* name;
    int ranks;
    const char* more;
  };
  const Layout layouts[] = {
      {"one", 1, ""},
      {"packed", 1, "train.max_tokens_per_microbatch=70"},
      {"dp2", 2, ""},
      {"tp2", 2, "roles.trainer.tp=2"},
      {"pp2", 2, "roles.trainer.pp=2"},
      {"vpp2", 2, "roles.trainer.pp=2 roles.trainer.vpp=2"},
      {"cp2", 2, "roles.trainer.cp=2"},
      {"zero3", 2, "roles.trainer.zero=3 train.max_tokens_per_microbatch=64"},
      {"apart", 4, R"(roles.trainer.ranks='"1-2"' cluster.idle_ranks=allow)"},
      {"all", 4, "roles.trainer.tp=2 roles.trainer.pp=2 train.max_tokens_per_microbatch=64"},
  };
  constexpr const char* kDtypes[] = {"fp32", "bf16"};
  std::vector<RanksRun> runs;
  for (const char* dtype : kDtypes)
    for (const Layout& l : layouts)
      runs.push_back(
          {l.ranks, fmt::format("{} run.dtype={} run.name={}-{} {}", keys, dtype, dtype, l.name, l.more)});
  ASSERT_EQ(run_each(runs), 0) << output();
  for (const char* dtype : kDtypes) {
    const Json want = program_.metrics(fmt::format("{}-one", dtype)).at(0);
    const double loss = want.at("val/held/loss").get<double>();
    EXPECT_EQ(want.at("val/held/ppl").get<double>(), std::exp(loss));
    for (const Layout& l : layouts) {
      const Json got = program_.metrics(fmt::format("{}-{}", dtype, l.name)).at(0);
      EXPECT_EQ(got.at("val/held/loss").dump(), want.at("val/held/loss").dump()) << dtype << " " << l.name;
      EXPECT_TRUE(got.contains("perf/peak_gb/validation/host")) << l.name;
    }
    const std::string of = fmt::format("model.path=deep validation.data=held.jsonl run.dtype={} ", dtype);
    for (const int ranks : {1, 2})
      EXPECT_EQ(eval(ranks, of + fmt::format("roles.trainer.tp={}", ranks)).at("val/held/loss").dump(),
                want.at("val/held/loss").dump());
  }
  // The loss of training on these lines, whose weights add up in another order.
  ASSERT_EQ(program_.run(keys + "data.train=held.jsonl train.samples_per_update=23"), 0) << output();
  const Json line = program_.metrics("run").at(0);
  EXPECT_NEAR(line.at("train/loss").get<double>(), line.at("val/held/loss").get<double>(), 1e-6);
}

/// More lines in a micro-batch than training has: the table of `check` is what the run holds.
TEST_F(ShortTrial, ThePlanCountsTheHeldOutLoss) {
  std::string held;  // short prompts: a micro-batch has as many targets as it can
  for (int i = 0; i < 1100; ++i) held += "{\"prompt\":\"7\",\"response\":\"123\"}\n";
  program_.write("held.jsonl", held);
  const std::string keys =
      " run.toml validation.data=held.jsonl validation.every=1 rollout.max_prompt_tokens=12 "
      "rollout.max_new_tokens=4 train.samples_per_update=4 train.max_tokens_per_microbatch=4096 ";
  ASSERT_EQ(program_.run("check" + keys + "--json 2> /dev/null"), 0) << output();
  std::map<std::string, double> planned;  // GiB
  const Json plan = Json::parse(output());
  for (const Json& row : plan.at("memory"))
    planned[row.at("phase").get<std::string>()] = row.at("host_bytes").get<double>() / 1073741824.0;
  ASSERT_EQ(program_.run("train" + keys), 0) << output();
  constexpr double kGrain = 8.0 / 1024;  // memory comes in blocks
  EXPECT_GT(planned.at("validation"), planned.at("train") + kGrain);
  EXPECT_NEAR(program_.metrics("run").at(0).at("perf/peak_gb/validation/host").get<double>(),
              planned.at("validation"), kGrain);
}

TEST_F(ShortTrial, TheLossIsThatOfTheStepAndIsResumed) {
  program_.write("held.jsonl", sums(9));
  const std::string keys =
      "train run.toml run.steps=4 checkpoint.every=2 checkpoint.keep=9 validation.data=held.jsonl "
      "validation.every=1 validation.max_prompts=5 ";
  ASSERT_EQ(program_.run(keys), 0) << output();
  copy_until("run", "resumed", 2, 4);
  ASSERT_EQ(program_.run(keys + "run.name=resumed"), 0) << output();
  EXPECT_EQ(metrics("resumed"), metrics("run"));
  std::vector<double> losses;
  for (const Json& line : program_.metrics("run")) losses.push_back(line.at("val/held/loss").get<double>());
  ASSERT_EQ(losses.size(), 4u);
  EXPECT_LT(losses[3], losses[0]) << "the lines are a part of those that are trained on";
  EXPECT_FALSE(exists("runs/run/validation")) << "nothing is generated";
  EXPECT_TRUE(says("val/held/loss")) << "the step's line: " << output();
}

TEST_F(ShortTrial, AStopCutsTheHeldOutLoss) {
  program_.write("held.jsonl", sums(1000));
  const std::string command =
      "train run.toml run.steps=2 validation.data=held.jsonl validation.every=1 roles.trainer.tp=2 "
      "train.max_tokens_per_microbatch=256 ";
  ASSERT_EQ(program_.run_ranks(2, command + "log.progress_seconds=0"), 0) << output();
  Background job(program_, program_.mpirun(2, command + "run.name=cut log.progress_seconds=0.02"));
  ASSERT_TRUE(job.until([&] { return says("step 1: validation"); })) << output();
  ::kill(job.rank(1), SIGTERM);
  ASSERT_EQ(job.wait(), static_cast<int>(Exit::retry)) << output();
  EXPECT_TRUE(says("SIGTERM: saved step 1")) << output();
  EXPECT_EQ(steps_done("cut"), 0) << "it waited for the validation";
  ASSERT_EQ(program_.run_ranks(2, command + "run.name=cut"), 0) << output();
  EXPECT_EQ(metrics("cut"), metrics("run"));
}

/// With rewards validation generates, too; then a set may do without responses.
TEST_F(ShortTrial, RewardsGenerateBesideTheLoss) {
  program_.write("held.jsonl", sums(4));
  program_.write("asked.jsonl", "{\"prompt\":\"What is 1 plus 1?\",\"answer\":\"2\"}\n");
  const std::string both = "'validation.data=[\"held.jsonl\",\"asked.jsonl\"]' ";
  const std::string scored = "reward.functions=arithmetic rollout.max_new_tokens=4 ";
  const Json result = eval(1, both + scored);
  EXPECT_TRUE(result.contains("val/held/loss") && result.contains("val/held/score/mean")) << result.dump();
  EXPECT_TRUE(!result.contains("val/asked/loss") && result.contains("val/asked/score/mean")) << result.dump();
  EXPECT_EQ(program_.run("eval run.toml " + both), 65);
  EXPECT_TRUE(says("asked.jsonl:1") && says("data.response_key = \"answer\"")) << output();
  EXPECT_EQ(program_.run("check run.toml " + both), 65);
  EXPECT_TRUE(says("asked.jsonl:1") && says("validation.data")) << output();
  EXPECT_EQ(program_.run("check run.toml " + both + scored), 0) << output();
  EXPECT_EQ(program_.run("eval run.toml validation.data=held.jsonl --out samples.jsonl"), 64);
  EXPECT_TRUE(says("reward.functions")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
