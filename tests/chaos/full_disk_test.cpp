// A full disk under what a verb says. Results that find no room: every verb that has some says so with its
// own exit code, whatever it wrote before. A log that finds none changes nothing: neither the code nor the
// results.

#include <sstream>

#include "tests/chaos/cases.h"
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

struct Case {
  std::string verb, words;
  bool has_results = true;
  bool in_full_only = false;  // under `make chaos`
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"help", ""},
      {"help", "keys"},
      {"help", "man"},
      {"help", "completion bash"},
      {"--version", ""},
      {"check", "run.toml"},
      {"check", "run.toml --json"},
      {"tokenize", "--tokenizer model --input lines.jsonl"},
      {"score", "--model model --input lines.jsonl"},
      {"generate", "--model model --prompts data.jsonl rollout.max_new_tokens=2"},
      {"generate", "--model model --prompts data.jsonl rollout.max_new_tokens=2 --local 2", true, true},
      {"eval", "run.toml"},
      {"verify", "--checkpoint runs/sft"},
      {"verify", "--checkpoint runs/sft --json"},
      {"verify-bits", "--model model --json", true, true},
      {"report", "runs/sft"},
      {"report", "runs/sft --csv /dev/stdout", true, true},
      {"serve", "--model model --port 0"},
      {"train", "run.toml run.name=other", false},
      {"export", "--checkpoint runs/sft --out exported", false},
      {"init", "--config config.json --out made --tokenizer model", false},
  };
  return kCases;
}

class FullDisk : public RunFixture {
 protected:
  void SetUp() override {
    prepare(kConfig, sums(3));
    program_.write("config.json", program_.read("model/config.json"));
    program_.write("lines.jsonl", R"({"tokens": [5, 6, 7]})"
                                  "\n");
    ASSERT_EQ(program_.run("train run.toml"), 0) << output();
  }
  int run_into(const Case& c, const std::string& where) const {
    for (const char* made : {"runs/other", "exported", "made"})
      if (exists(made)) remove_tree(program_.path(made));
    return program_.shell(fmt::format("{} {} {} {}", program_.temper(), c.verb, c.words, where));
  }
};

/// `make test` has those that cost little.
std::vector<Case> drawn_cases() {
  std::vector<Case> drawn;
  for (const Case& c : cases())
    if (chaos_in_full() || !c.in_full_only) drawn.push_back(c);
  return drawn;
}

TEST_F(FullDisk, NoVerbIsLeftOut) {
  ASSERT_EQ(program_.run("help completion bash"), 0);
  const std::string text = output(), sign = "COMP_CWORD == 1)); then _temper_words '";
  ASSERT_NE(text.find(sign), std::string::npos) << text;
  const size_t begin = text.find(sign) + sign.size();
  std::istringstream words(text.substr(begin, text.find('\'', begin) - begin));
  for (std::string verb; words >> verb && !verb.starts_with("--");)
    EXPECT_TRUE(std::any_of(cases().begin(), cases().end(), [&](const Case& c) { return c.verb == verb; }))
        << verb << " has no case here";
}

TEST_F(FullDisk, NoVerbLosesResultsSilently) {
  for (const Case& c : drawn_cases()) {
    const int code = run_into(c, "> /dev/full");
    EXPECT_EQ(code, c.has_results ? static_cast<int>(Exit::storage) : 0) << c.verb << " " << c.words << "\n"
                                                                         << output();
    if (c.has_results) {
      EXPECT_TRUE(says("the results cannot be written\n  where: stdout\n"))
          << c.verb << " " << c.words << "\n"
          << output();
    }
  }
  EXPECT_EQ(program_.shell(program_.temper() + " check none.toml --json > /dev/full"),
            static_cast<int>(Exit::usage))
      << output();
}

TEST_F(FullDisk, ALogWithoutRoomChangesNothing) {
  for (const Case& c : drawn_cases()) {
    if (c.verb == "serve") continue;  // it goes on
    EXPECT_EQ(run_into(c, "2> /dev/full > results"), 0) << c.verb << " " << c.words;
    if (c.has_results) {
      EXPECT_FALSE(program_.read("results").empty()) << c.verb << " " << c.words;
    }
  }
  EXPECT_EQ(program_.shell(program_.temper() + " train none.toml 2> /dev/full"),
            static_cast<int>(Exit::usage));
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
