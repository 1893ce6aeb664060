// Results that find no room: every verb that has some says so with its own exit code, whatever it wrote
// before.

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "sft"
run.steps = 1
algorithm.name = "sft"
rollout.prompts_per_step = 2
rollout.max_new_tokens = 2
train.samples_per_update = 2
reward.functions = ["exact"]
validation.data = "data.jsonl"
)";

class FullDisk : public RunFixture {
 protected:
  void SetUp() override {
    prepare(kConfig, sums(3));
    program_.write("lines.jsonl", R"({"tokens": [5, 6, 7]})"
                                  "\n");
  }
};

TEST_F(FullDisk, NoVerbLosesResultsSilently) {
  ASSERT_EQ(program_.run("train run.toml"), 0) << output();
  for (const std::string& verb :
       {std::string("help"), std::string("help keys"), std::string("help man"),
        std::string("help completion bash"), std::string("--version"), std::string("check run.toml"),
        std::string("check run.toml --json"), std::string("tokenize --tokenizer model --input lines.jsonl"),
        std::string("score --model model --input lines.jsonl"),
        std::string("generate --model model --prompts data.jsonl rollout.max_new_tokens=2"),
        std::string("eval run.toml"), std::string("verify --checkpoint runs/sft"),
        std::string("verify --checkpoint runs/sft --json"), std::string("report runs/sft")}) {
    EXPECT_EQ(program_.shell(program_.temper() + " " + verb + " > /dev/full"),
              static_cast<int>(Exit::storage))
        << verb << "\n"
        << output();
    EXPECT_TRUE(says("the results cannot be written\n  where: stdout\n")) << verb << "\n" << output();
  }
  EXPECT_EQ(program_.shell(program_.temper() + " check none.toml --json > /dev/full"),
            static_cast<int>(Exit::usage))
      << output();
}

TEST_F(FullDisk, AReaderThatHasEnoughIsNoError) {
  EXPECT_EQ(program_.shell("( trap '' PIPE; " + program_.temper() +
                           " help man; echo code $? >&2; ) | head -n 1 > /dev/null"),
            0);
  EXPECT_EQ(output(), "code 0\n");
  EXPECT_EQ(program_.shell(program_.temper() + " help >&-"), static_cast<int>(Exit::storage)) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
