// Runs that train all turns of conversations: in one sample, or each in its own.

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

constexpr const char* kConfig = R"(
run.name = "run"
run.steps = 1
algorithm.name = "sft"
optimizer.lr = 0
data.chat = true
train.samples_per_update = 4
validation.data = "held.jsonl"
validation.every = 1
)";

/// A line whose turns are the first `turns` of three.
Json talk(int number, size_t turns) {
  Json messages = Json::array();
  for (size_t turn = 0; turn < turns; ++turn) {
    messages.push_back({{"role", "user"}, {"content", fmt::format("{} plus {}?", number, turn)}});
    messages.push_back({{"role", "assistant"}, {"content", std::to_string(number + static_cast<int>(turn))}});
  }
  return {{"messages", std::move(messages)}};
}

class TrainOnRun : public RunFixture {
 protected:
  void SetUp() override {
    std::string whole, apart;
    for (int i = 0; i < 4; ++i) {
      whole += talk(10 * i, 3).dump() + "\n";
      for (size_t turns = 1; turns <= 3; ++turns) apart += talk(10 * i, turns).dump() + "\n";
    }
    prepare(kConfig, whole);
    program_.write("held.jsonl", whole);
    program_.write("apart.jsonl", apart);
    std::string config = program_.read("run.toml");
    const size_t rewards = config.find("reward.functions");
    program_.write("run.toml", config.erase(rewards, config.find('\n', rewards) - rewards));
  }
  Json first_step(const std::string& name, const std::string& more) const {
    EXPECT_EQ(program_.run("train run.toml run.name=" + name + " " + more), 0) << output();
    return program_.metrics(name).at(0);
  }
  Json check(const std::string& more) const {
    EXPECT_EQ(program_.run("check run.toml --json " + more + " 2> /dev/null"), 0) << output();
    return Json::parse(output());
  }
};

/// The template renders turns alike wherever they stand, so the same tokens are trained behind the same
/// prompts.
TEST_F(TrainOnRun, AllEachAndLinesOfTheirTurnsAreOneLoss) {
  const Json all = first_step("all", "data.train_on=all"),
             each = first_step("each", "data.train_on=each train.samples_per_update=12"),
             apart = first_step("apart",
                                "data.train=apart.jsonl validation.data=apart.jsonl data.shuffle=false "
                                "train.samples_per_update=12"),
             last = first_step("last", "");
  EXPECT_EQ(all.at("val/held/loss").dump(), each.at("val/held/loss").dump());
  EXPECT_EQ(all.at("val/held/loss").dump(), apart.at("val/apart/loss").dump());
  EXPECT_NEAR(all.at("train/loss").get<double>(), each.at("train/loss").get<double>(), 1e-6);
  EXPECT_NEAR(all.at("train/loss").get<double>(), apart.at("train/loss").get<double>(), 1e-6);
  EXPECT_NE(all.at("val/held/loss").dump(), last.at("val/held/loss").dump());
}

TEST_F(TrainOnRun, EpochsAndCheckCountTurns) {
  EXPECT_EQ(check("run.epochs=1 data.train_on=each").at("steps"), 3);
  EXPECT_EQ(check("run.epochs=1 data.train_on=all").at("steps"), 1);
  ASSERT_EQ(program_.run("train run.toml run.epochs=1 data.train_on=each"), 0) << output();
  EXPECT_EQ(steps_done("run"), 3);
  ASSERT_EQ(program_.run("check run.toml --all data.train_on=each"), 0) << output();
  EXPECT_TRUE(says("each a sample: data.train_on = \"each\"")) << output();
  EXPECT_FALSE(says("sees some of them twice")) << output();
  ASSERT_EQ(program_.run("check run.toml --all data.train_on=all"), 0) << output();
  EXPECT_TRUE(says("its trained ids")) << output();
  const Json first = check("data.train_on=all").at("data").at("first_prompt");
  EXPECT_EQ(first.at("response_mask").size(), first.at("response_ids").size());
}

TEST_F(TrainOnRun, ATemplateThatRewritesTurnsIsRefused) {
  program_.write("qwen3.jinja", read_file("tests/golden/chat/templates/qwen3.jinja", 1 << 20));
  const std::string keys = " tokenizer.chat_template=qwen3.jinja validation.every=0 data.train_on=";
  EXPECT_EQ(program_.run("train run.toml" + keys + "all"), 65);
  for (const char* words : {"earlier turn", "data.jsonl:1", "data.train_on = \"each\""})
    EXPECT_TRUE(says(words)) << output();
  EXPECT_EQ(program_.run("train run.toml" + keys + "each"), 0) << output();
}

TEST_F(TrainOnRun, WhereItHasNoEffectIsSaid) {
  EXPECT_NE(program_.run("check run.toml data.train_on=all data.chat=false"), 70);
  EXPECT_TRUE(says("data.train_on = \"all\" has no effect without data.chat")) << output();
  EXPECT_EQ(program_.run("check run.toml data.train_on=some"), 64);
  EXPECT_TRUE(says("\"last\"") && says("\"all\"") && says("\"each\"")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
