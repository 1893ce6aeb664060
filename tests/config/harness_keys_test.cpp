// rollout.harness and the keys beside it: a program or a list of them, what is refused, what reloads.

#include <gtest/gtest.h>

#include "src/config/values.h"
#include "tests/config/config_text.h"

namespace temper {
namespace {

std::vector<HarnessConfig> programs_of(const std::vector<std::string>& overrides,
                                       const std::string& text = kMinimalConfig) {
  return load_text(text, overrides).config.rollout.harness;
}

TEST(HarnessKeys, AProgramIsATableOrASection) {
  const auto table = programs_of({"rollout.harness={argv=[\"a\",\"b\"],limit_seconds=5}"});
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0].argv, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(table[0].limit_seconds, 5);
  EXPECT_EQ(table[0].kind, "episode");
  EXPECT_FALSE(table[0].service());
  const std::string section =
      std::string(kMinimalConfig) +
      "[rollout.harness]\nargv = [\"p\"]\nkind = \"service\"\nworkers = 3\nin_flight = 7\nretries = 2\n"
      "on_error = \"stop\"\nenv = {A = \"1\", B = \"$HOME\"}\naliases = {\"gpt-4o\" = \"policy\"}\n"
      "ignore = [\"response_format\"]\n";
  const auto full = programs_of({"rollout.harness.workers=4"}, section);
  ASSERT_EQ(full.size(), 1u);
  EXPECT_TRUE(full[0].service());
  EXPECT_EQ(full[0].workers, 4);
  EXPECT_EQ(full[0].in_flight, 7);
  EXPECT_EQ(full[0].retries, 2);
  EXPECT_EQ(full[0].on_error, "stop");
  EXPECT_EQ(full[0].env.at("B"), "$HOME");
  EXPECT_EQ(full[0].aliases.at("gpt-4o"), "policy");
  EXPECT_EQ(full[0].ignore, std::vector<std::string>{"response_format"});
  EXPECT_TRUE(programs_of({}).empty());
  EXPECT_TRUE(programs_of({"rollout.harness=[]"}).empty());
}

TEST(HarnessKeys, AListHasNamesAndReloads) {
  const std::string list =
      "rollout.harness=[{name=\"a\",argv=[\"x\"]},{name=\"b\",argv=[\"y\"],env={\"A B\"=\"\\n\"}}]";
  const LoadedConfig first = load_text(kMinimalConfig, {list, "rollout.server.max_body=2MiB"});
  EXPECT_EQ(first.config.rollout.harness[1].name, "b");
  EXPECT_EQ(first.config.rollout.server.max_body_bytes, int64_t{2} << 20);
  const LoadedConfig second = load_text(dump_config(first));
  EXPECT_EQ(config_json(second.config).dump(), config_json(first.config).dump());
  EXPECT_EQ(second.config.rollout.harness[1].env.at("A B"), "\n");
}

TEST(HarnessKeys, ProgramsGiveRewards) {
  std::string text = kMinimalConfig;
  text.erase(text.find("[reward]"));
  EXPECT_EQ(read_text(text).errors.size(), 1u);
  EXPECT_TRUE(read_text(text, {"rollout.harness={argv=[\"a\"]}"}).errors.empty());
}

TEST(HarnessKeys, WhatIsNoProgramIsRefused) {
  const struct {
    const char* written;
    const char* words;
  } cases[] = {
      {"rollout.harness=agent.py", "no table"},
      {"rollout.harness=[\"agent.py\"]", "no table"},
      {"rollout.harness={kind=\"episode\"}", "a program has no argv"},
      {"rollout.harness={argv=[]}", "a program has no argv"},
      {"rollout.harness={argv=[\"\"]}", "`argv`"},
      {"rollout.harness={argv=\"a b\"}", "`argv`"},
      {"rollout.harness={argv=[\"a\"],kind=\"episodes\"}", "\"episode\" or \"service\""},
      {"rollout.harness={argv=[\"a\"],in_flight=0}", "at least 1"},
      {"rollout.harness={argv=[\"a\"],workers=257}", "at most 256"},
      {"rollout.harness={argv=[\"a\"],limit_seconds=0}", "at least 0.01"},
      {"rollout.harness={argv=[\"a\"],retries=-1}", "at least 0"},
      {"rollout.harness={argv=[\"a\"],on_error=\"skip\"}", "\"exclude\", \"zero\" or \"stop\""},
      {"rollout.harness={argv=[\"a\"],env=[\"A=1\"]}", "a table of strings"},
      {"rollout.harness={argv=[\"a\"],env={A=1}}", "`env`"},
      {"rollout.harness={argv=[\"a\"],env={\"A=B\"=\"1\"}}", "is no name"},
      {"rollout.harness={argv=[\"a\"],aliases={x=\"gpt\"}}", "\"policy\" or \"policy-untrained\""},
      {"rollout.harness={argv=[\"a\"],limit_second=5}", "did you mean `limit_seconds`"},
      {"rollout.harness=[{argv=[\"a\"]},{argv=[\"b\"]}]", "has no name"},
      {"rollout.harness=[{name=\"x\",argv=[\"a\"]},{name=\"x\",argv=[\"b\"]}]", "the name of two programs"},
  };
  for (const auto& [written, words] : cases) {
    const ConfigReading reading = read_text(kMinimalConfig, {written});
    ASSERT_EQ(reading.errors.size(), 1u) << written;
    EXPECT_EQ(reading.errors[0].key, "rollout.harness");
    EXPECT_NE(reading.errors[0].message.find(words), std::string::npos) << reading.errors[0].message;
    EXPECT_NE(reading.errors[0].message.find("legal: "), std::string::npos) << reading.errors[0].message;
    for (const Json& legal : reading.errors[0].legal)
      EXPECT_TRUE(read_text(kMinimalConfig, {"rollout.harness=" + toml_text(legal)}).errors.empty());
  }
  const std::string large = std::string(40000, 'x');
  EXPECT_NE(read_text(kMinimalConfig, {"rollout.harness={argv=[\"" + large + "\"]}"})
                .errors.at(0)
                .message.find("argv and env have 40001 bytes"),
            std::string::npos);
}

TEST(HarnessKeys, LimitsAndServerHaveTheirRanges) {
  for (const char* written :
       {"rollout.server.port=65536", "rollout.server.port=-1", "rollout.server.threads=0",
        "rollout.server.address=", "rollout.server.max_body=10", "rollout.server.max_body=2GiB",
        "rollout.server.max_body=big", "rollout.max_turns=-1", "rollout.session_seconds=-1",
        "rollout.on_limit=drop"}) {
    const ConfigReading reading = read_text(kMinimalConfig, {written});
    ASSERT_EQ(reading.errors.size(), 1u) << written;
    const std::string key = std::string(written).substr(0, std::string(written).find('='));
    EXPECT_EQ(reading.errors[0].key, key);
    for (const Json& legal : reading.errors[0].legal)
      EXPECT_TRUE(read_text(kMinimalConfig, {key + "=" + toml_text(legal)}).errors.empty())
          << key << " " << legal;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
