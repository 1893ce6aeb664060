// `temper check` of a config whose samples programs play: one session of the first line, as the template
// renders it, without weights; programs that misbehave end in time and leave nothing.

#include "src/core/check.h"
#include "tests/agents/player.h"
#include "tests/support/processes.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "trial"
run.steps = 1
model.init = "random"
tokenizer.path = "model"
data.chat = true
rollout.prompts_per_step = 1
rollout.samples_per_prompt = 2
rollout.max_prompt_tokens = 100
rollout.max_new_tokens = 100
rollout.max_turn_tokens = 12
train.samples_per_update = 2
)";

class SessionTrial : public RunFixture {
 protected:
  void SetUp() override { prepare(kConfig, sums(2)); }

  static std::string harness(const std::string& argv, const std::string& more = "") {
    return fmt::format("'rollout.harness={{argv = [{}]{}}}'", argv, more);
  }
  static std::string player(const std::string& play) {
    return fmt::format("\"{}\", \"--play\", {}", std::filesystem::read_symlink("/proc/self/exe").string(),
                       play);
  }
  std::string shell(const std::string& script) const {
    program_.write("play.sh", script + "\n");
    return fmt::format("\"sh\", \"{}\"", program_.path("play.sh"));
  }
  Json check(const std::string& harness, int code = 0) const {
    EXPECT_EQ(program_.shell(program_.temper() + " check run.toml --json " + harness + " 2> said"), code)
        << output() << program_.read("said");
    return parse_json(output(), "output");
  }
};

TEST_F(SessionTrial, ASessionIsPlayedAndShown) {
  const Json trial = check(harness(player("\"episode\", \"--turns\", \"3\"")))["session_trial"];
  EXPECT_EQ(trial["end_reason"], "done");
  EXPECT_EQ(trial["samples"], 1);
  EXPECT_EQ(trial["parts"], (Json{{"length", 3}}));
  ASSERT_EQ(trial["turns"].size(), 3u);
  const Json &first = trial["turns"][0], &second = trial["turns"][1];
  EXPECT_TRUE(first["goes_on_from"].is_null());
  EXPECT_NE(first["new_text"].get<std::string>().find("<|im_start|>user\nWhat is 0 plus 0?"),
            std::string::npos)
      << first;
  EXPECT_EQ(first["said"], "0");
  EXPECT_EQ(second["goes_on_from"], 1);
  EXPECT_NE(second["new_text"].get<std::string>().find("Go on, 1."), std::string::npos) << second;
  EXPECT_EQ(second["new_text"].get<std::string>().find("plus"), std::string::npos) << second;
  // The answer and the token that ends it, in each turn.
  EXPECT_EQ(trial["trained_tokens"], 6);
  ASSERT_EQ(program_.run("check run.toml " +
                         harness(player("\"service\", \"--turns\", \"2\""), ", kind = \"service\"")),
            0)
      << output();
  EXPECT_TRUE(says("batch sizes count sessions, 2 a step and 2 an update")) << output();
  for (const char* text : {"turn 1: a prompt of", "rendered whole", "What is 0 plus 0?", "behind turn 1",
                           "said: 2 tokens", "end_reason", "\"done\""})
    EXPECT_TRUE(says(text)) << text << "\n" << output();
}

TEST_F(SessionTrial, AHistoryThatIsRewrittenIsTold) {
  const Json json = check(harness(player("\"episode\", \"--turns\", \"3\", \"--forget\"")));
  EXPECT_EQ(json["session_trial"]["samples"], 2);
  EXPECT_EQ(json["batch"]["samples_are"], "sessions");
  EXPECT_NE(json["warnings"].dump().find("do not go on from another"), std::string::npos) << json["warnings"];
}

/// They die, hang with children that ignore signals, flood, and say nonsense: nothing but a warning is left.
TEST_F(SessionTrial, ProgramsThatMisbehaveEndInTime) {
  const std::string mark = fmt::format("TRIAL_TEST={}", ::getpid());
  const std::string hangs =
      "trap : TERM; export " + mark + "; (trap : TERM; sleep 100) & while :; do sleep 1; done";
  const struct {
    std::string script, reason, more = "", keys = "";
  } cases[] = {{"exit 3", "died"},
               {hangs, "late", ", limit_seconds = 1"},
               {"yes", "late", ", limit_seconds = 1"},
               {"echo '{\"reward\": \"high\"}'", "nonsense"},
               {"exit 0", "no_request"},
               {"sleep 30", "late", "", " rollout.session_seconds=0.5"}};
  for (const auto& c : cases) {
    const Json json = check(harness(shell(c.script), c.more) + c.keys);
    EXPECT_EQ(json["session_trial"]["end_reason"], c.reason) << c.script;
    EXPECT_NE(json["warnings"].dump().find(c.reason), std::string::npos) << json["warnings"];
  }
  for (int i = 0; i < 300 && !processes_with(mark).empty(); ++i) ::usleep(10'000);
  EXPECT_TRUE(processes_with(mark).empty());
  const Json absent = check(harness("\"no-such-program\""), 64);
  EXPECT_EQ(absent["errors"][0]["key"], "rollout.harness");
}

TEST_F(SessionTrial, NoRewardFromAnywhereIsTold) {
  const std::string silent = harness(player("\"episode\", \"--silent\""));
  const Json scored = check(silent);
  EXPECT_EQ(scored["session_trial"]["end_reason"], "done") << "functions give one";
  EXPECT_EQ(scored["warnings"].dump().find("without a reward"), std::string::npos) << scored["warnings"];
  std::string config = program_.read("run.toml");
  const std::string functions = "reward.functions = [\"arithmetic\"]\n";
  config.erase(config.find(functions), functions.size());
  program_.write("run.toml", config);
  const Json json = check(silent);
  EXPECT_EQ(json["session_trial"]["end_reason"], "no_reward");
  EXPECT_TRUE(json["session_trial"]["reward"].is_null());
  const std::string warnings = json["warnings"].dump();
  for (const char* text : {"ended without a reward", "in its last line", "reward.functions"})
    EXPECT_NE(warnings.find(text), std::string::npos) << text << "\n" << warnings;
}

/// The line is not the first one, and no step would draw it soon.
TEST_F(SessionTrial, ALineThatNoProgramPlaysIsNamed) {
  program_.write("data.jsonl",
                 sums(2) + "{\"prompt\": \"9?\", \"answer\": \"9\", \"environment\": \"maths\"}\n");
  const std::string one = harness("\"true\"", ", name = \"math\"");
  const Json json = check(one, 65);
  ASSERT_FALSE(json["errors"].empty());
  EXPECT_EQ(json["errors"][0]["key"], "data.train");
  EXPECT_EQ(json["errors"][0]["where"], "data.jsonl:3");
  EXPECT_EQ(program_.run("train run.toml " + one), 65) << output();
  for (const std::string& said : {json["errors"][0]["message"].get<std::string>(), output()})
    EXPECT_NE(said.find("name one of rollout.harness: math"), std::string::npos) << said;
  EXPECT_TRUE(says("data.jsonl:3")) << output();
  program_.write("data.jsonl", sums(2));
  program_.write("held.jsonl",
                 program_.read("data.jsonl") + "{\"prompt\": \"9?\", \"environment\": \"x\"}\n");
  const std::string held = one + " 'validation.data=[\"held.jsonl\"]' validation.every=1 ";
  const Json found = check(held, 65);
  ASSERT_EQ(found["errors"].size(), 1u) << found;
  EXPECT_EQ(found["errors"][0]["key"], "validation.data");
  EXPECT_EQ(found["errors"][0]["where"], "held.jsonl:3");
  EXPECT_NE(found["errors"][0]["message"].get<std::string>().find("name one of rollout.harness: math"),
            std::string::npos)
      << found;
  EXPECT_EQ(program_.run("train run.toml " + held), 65);
  EXPECT_TRUE(says("held.jsonl:3")) << output();
  check(held + "validation.max_prompts=2");  // a line that no validation takes may say anything
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (const auto code = temper::play_if_asked(argc, argv)) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
