// What the README and conf/ show of agents, run as it is written, on a tiny model: the config of ten lines,
// the game over pipes, the recipes. Each needs python3, and nothing beyond its library.

#include "src/config/load.h"
#include "src/core/split.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

/// The part of the README that stands four columns in and begins with these words, without the columns.
std::string example(const std::string& begin) {
  std::string text;
  for (const std::string& line : split(read_file("README.md", 1 << 20), '\n')) {
    if (text.empty() && !line.starts_with("    " + begin)) continue;
    if (!line.starts_with("    ")) break;
    text += line.substr(4) + "\n";
  }
  return text;
}

int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

constexpr const char* kInit =
    "init --config conf/agents/config.json --tokenizer conf/agents --out runs/agents/model --seed 1";

class AgentExamples : public RunFixture {
 protected:
  void SetUp() override {
    if (program_.shell("command -v python3") != 0) GTEST_SKIP() << "there is no python3";
    std::filesystem::create_directory_symlink(std::filesystem::absolute("conf"), program_.path("conf"));
  }
  /// Every session of the step has ended by itself.
  void expect_done(const std::string& run, int64_t step, size_t sessions) const {
    const std::vector<Json> samples = program_.json_lines(rollout_file(run, step));
    EXPECT_EQ(samples.size(), sessions);
    for (const Json& sample : samples) {
      EXPECT_EQ(sample["end_reason"], "done") << sample.dump();
      EXPECT_TRUE(sample["reward"].is_number());
    }
  }
};

TEST_F(AgentExamples, TheConfigOfTenLinesIsLegal) {
  const std::string config = example("run.name = \"agent\"");
  EXPECT_EQ(lines_of(config), 10);
  program_.write("agent.toml", config);
  const ConfigReading read = read_config(program_.path("agent.toml"), {});
  for (const auto& error : read.errors) ADD_FAILURE() << error.key << ": " << error.message;
  EXPECT_EQ(read.loaded.config.rollout.harness.size(), 1u);
}

TEST_F(AgentExamples, TheGameOverPipesPlays) {
  const std::string game = example("import json, sys                                    # game.py");
  EXPECT_LE(lines_of(game), 15);
  ASSERT_GT(lines_of(game), 10);
  program_.write("game.py", game);
  program_.write("data.jsonl",
                 "{\"prompt\": \"\", \"answer\": \"7\"}\n{\"prompt\": \"\", \"answer\": \"70\"}\n");
  std::string config = example("run.name = \"agent\"");
  const std::string agent = "{argv = [\"python3\", \"agent.py\"]}";
  ASSERT_NE(config.find(agent), std::string::npos);
  program_.write("agent.toml", config.replace(config.find(agent), agent.size(),
                                              "{argv = [\"python3\", \"game.py\"], kind = \"service\"}"));
  ASSERT_EQ(program_.init_model("model"), 0) << output();
  ASSERT_EQ(program_.run("train agent.toml run.steps=1 run.threads=1 model.path=model data.train=data.jsonl "
                         "rollout.prompts_per_step=2 rollout.samples_per_prompt=2 rollout.max_new_tokens=200 "
                         "rollout.max_turn_tokens=8 rollout.max_prompt_tokens=50"),
            0)
      << output();
  expect_done("agent", 1, 4);
  for (const Json& sample : program_.json_lines(rollout_file("agent", 1))) EXPECT_EQ(sample["turns"], 7);
}

TEST_F(AgentExamples, RecipesPlay) {
  ASSERT_EQ(program_.run(kInit), 0) << output();
  for (const std::string name : {"calculator", "twenty_questions"}) {
    const std::string keys = "run.threads=1 log.samples_per_step=0 validation.every=0 checkpoint.every=0 ";
    ASSERT_EQ(program_.shell("python3 conf/agents/" + name + ".py data runs/agents/data"), 0) << output();
    ASSERT_EQ(program_.run(fmt::format("train conf/{0}_sft.toml run.steps=2 checkpoint.export_hf_every=2 "
                                       "optimizer.warmup_steps=0 train.samples_per_update=8 {1}",
                                       name, keys)),
              0)
        << output();
    ASSERT_EQ(program_.run(fmt::format("train conf/{0}_grpo.toml run.steps=1 optimizer.warmup_steps=0 "
                                       "checkpoint.export_hf_every=0 rollout.prompts_per_step=4 "
                                       "rollout.samples_per_prompt=2 train.updates_per_step=1 "
                                       "model.path=runs/agents/{0}-sft/export/step-000002 {1}",
                                       name, keys)),
              0)
        << output();
    expect_done("agents/" + name, 1, 8);
  }
}

/// Programs that say rewards are enough to validate with.
TEST_F(AgentExamples, CheckAndEvalNeedNoRewardFunctions) {
  ASSERT_EQ(program_.run(kInit), 0) << output();
  ASSERT_EQ(program_.shell("python3 conf/agents/twenty_questions.py data runs/agents/data"), 0) << output();
  EXPECT_EQ(program_.run("check conf/twenty_questions_grpo.toml run.threads=1 model.path=runs/agents/model"),
            0)
      << output();
  ASSERT_EQ(program_.run("eval conf/twenty_questions_grpo.toml model.path=runs/agents/model run.threads=1"),
            0)
      << output();
  EXPECT_TRUE(says("\"val/letters/score/mean\"")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
