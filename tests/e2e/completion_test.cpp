// The scripts of `temper help completion` and the page of `temper help man`, read by the programs they are
// for.

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

class Completion : public ::testing::Test {
 protected:
  bool has(const char* program) const { return program_.shell(fmt::format("command -v {}", program)) == 0; }
  /// What bash offers for the last of `words`.
  std::string offered(const std::string& words) const {
    program_.write(
        "ask.sh",
        ". ./temper.bash\nCOMP_WORDS=(" + words +
            ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_temper\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
    EXPECT_EQ(program_.shell("bash ask.sh"), 0) << program_.output();
    return "\n" + program_.output();
  }
  const Program program_;
};

TEST_F(Completion, BashOffersVerbsOptionsKeysAndFiles) {
  ASSERT_EQ(program_.run("help completion bash > temper.bash"), 0) << program_.output();
  ASSERT_EQ(program_.shell("bash -n temper.bash"), 0) << program_.output();
  program_.write("my config.toml", "");
  ASSERT_EQ(program_.shell("mkdir runs"), 0);
  EXPECT_EQ(offered("temper tr"), "\ntrain\n");
  EXPECT_EQ(offered("temper check --exp"), "\n--explain-batch\n");
  EXPECT_EQ(offered("temper train c.toml rollout.temp"), "\nrollout.temperature=\n");
  EXPECT_EQ(offered("temper generate --device cu"), "\ncuda\n");
  EXPECT_EQ(offered("temper generate optimizer.l"), "\n\n") << "only rollout.* is legal there";
  EXPECT_EQ(offered("temper check my"), "\nmy config.toml\n");
  EXPECT_EQ(offered("temper report ru"), "\nruns\n");
  EXPECT_EQ(offered("temper help exit"), "\nexit-codes\n");
  for (const char* verb : {"train", "check", "generate", "report", "help"})
    EXPECT_NE(offered("temper ''").find(fmt::format("\n{}\n", verb)), std::string::npos) << verb;
}

TEST_F(Completion, OtherShellsReadTheirs) {
  for (const char* shell : {"zsh", "fish"}) {
    ASSERT_EQ(program_.run(fmt::format("help completion {0} > temper.{0}", shell)), 0) << program_.output();
    EXPECT_NE(program_.read(fmt::format("temper.{}", shell)).find("explain-batch"), std::string::npos);
    if (has(shell)) {
      EXPECT_EQ(program_.shell(fmt::format("{0} -n temper.{0}", shell)), 0) << program_.output();
    }
  }
  if (!has("fish")) return;
  const auto fish = [&](const std::string& line) {
    EXPECT_EQ(program_.shell("HOME=$PWD fish -c 'source temper.fish; complete -C \"" + line + "\"'"), 0);
    return program_.output();
  };
  EXPECT_EQ(fish("temper train --dump").substr(0, 16), "--dump-gradients");
  EXPECT_EQ(fish("temper check c.toml rollout.temp").substr(0, 20), "rollout.temperature=");
  EXPECT_EQ(fish("temper generate --device cu").substr(0, 4), "cuda");
}

TEST_F(Completion, TheManualIsSoundRoff) {
  ASSERT_EQ(program_.run("help man > temper.1"), 0) << program_.output();
  const std::string page = program_.read("temper.1");
  for (const char* part :
       {"explain\\-batch", "rollout.temperature", "critic/score", ".SH EXIT STATUS", "OMP_NUM_THREADS"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  if (!has("groff")) GTEST_SKIP() << "no groff";
  EXPECT_EQ(program_.shell("groff -ww -man -Tutf8 temper.1 > /dev/null"), 0);
  EXPECT_EQ(program_.output(), "");
  EXPECT_EQ(program_.shell("groff -ww -man -Tascii -P-cbou -rLL=80n temper.1 | awk 'length > 80'"), 0);
  EXPECT_EQ(program_.output(), "") << "as wide as a terminal";
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
