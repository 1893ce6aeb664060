// Agents learn from what their tools and games tell them: a calculator over HTTP, twenty questions over
// pipes; where the answers are those of another question, nothing is learned. The recipes of conf/, with one
// seed each.

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

class AgentsLearn : public RunFixture {
 protected:
  /// The recipe's data, a model of random weights, and the one that its careless teacher has taught.
  void warm_up(const std::string& recipe) {
    std::filesystem::create_directory_symlink(std::filesystem::absolute("conf"), program_.path("conf"));
    ASSERT_EQ(
        program_.shell(fmt::format("python3 conf/agents/{}.py data runs/agents/data && {} init --config "
                                   "conf/agents/config.json --tokenizer conf/agents --out runs/agents/model "
                                   "--seed 1",
                                   recipe, program_.temper())),
        0)
        << output();
    ASSERT_EQ(program_.run(fmt::format("train conf/{}_sft.toml log.samples_per_step=0", recipe)), 0)
        << output();
  }
  /// The score of the last validation of a run, whose program gets the argument.
  double learned(const std::string& recipe, const std::string& set, const std::string& argument) {
    const std::string name = recipe + argument;
    EXPECT_EQ(program_.run(fmt::format(
                  "train conf/{0}_grpo.toml run.name={1} log.samples_per_step=0 'rollout.harness={{argv = "
                  "[\"python3\", \"conf/agents/{0}.py\", \"{2}\"], kind = \"service\"}}'",
                  recipe, name, argument)),
              0)
        << output();
    const double score = program_.metrics("agents/" + name).back().value("val/" + set + "/score/mean", -1.0);
    std::fprintf(stderr, "%s: score %.3f\n", name.c_str(), score);
    return score;
  }
};

TEST_F(AgentsLearn, ToUseACalculator) {
  warm_up("calculator");
  EXPECT_GE(learned("calculator", "heldout", "--right"), 0.75);
  EXPECT_LE(learned("calculator", "heldout", "--shuffled"), 0.05);
}

TEST_F(AgentsLearn, ToAskQuestions) {
  warm_up("twenty_questions");
  EXPECT_GE(learned("twenty_questions", "letters", "--right"), 0.65);
  EXPECT_LE(learned("twenty_questions", "letters", "--shuffled"), 0.4);  // four letters of twelve are a third
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
