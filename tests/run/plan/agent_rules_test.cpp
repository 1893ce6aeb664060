// What programs that play sessions, and the limits of sessions, do not fit.

#include <gtest/gtest.h>

#include "src/config/values.h"
#include "src/run/plan/plan.h"
#include "tests/config/config_text.h"
#include "tests/run/small_model.h"

namespace temper {
namespace {

constexpr const char* kProgram = "rollout.harness={argv=[\"a\"]}";

PlanResult plan_of(const std::vector<std::string>& overrides, int ranks = 1,
                   const std::string& text = kMinimalConfig) {
  const ConfigReading reading = read_text(text, overrides);
  EXPECT_TRUE(reading.errors.empty()) << reading.errors[0].key << ": " << reading.errors[0].message;
  return try_plan(reading.loaded.config, ranks, small_model());
}

/// Each proposed value removes the error, which is the only one.
void expect_refused(std::vector<std::string> overrides, const std::string& key, const std::string& words,
                    int ranks = 1) {
  SCOPED_TRACE(key);
  overrides.emplace_back(kProgram);
  const PlanResult result = plan_of(overrides, ranks);
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].key, key);
  EXPECT_NE(result.errors[0].message.find(words), std::string::npos) << result.errors[0].message;
  EXPECT_FALSE(result.errors[0].legal.empty());
  for (const Json& legal : result.errors[0].legal) {
    overrides.push_back(key + "=" + toml_text(legal));
    EXPECT_TRUE(plan_of(overrides, ranks).errors.empty()) << legal;
    overrides.pop_back();
  }
}

TEST(AgentRules, LimitsBelowATurnAreRefused) {
  expect_refused({"rollout.max_session_tokens=15"}, "rollout.max_session_tokens", "16 tokens");
  expect_refused({"rollout.max_turn_tokens=8", "rollout.max_session_tokens=7"}, "rollout.max_session_tokens",
                 "8 tokens (rollout.max_turn_tokens)");
  expect_refused({"rollout.max_turn_tokens=17"}, "rollout.max_turn_tokens",
                 "more than rollout.max_new_tokens");
  expect_refused({"rollout.max_turn_tokens=4", "rollout.min_new_tokens=5"}, "rollout.max_turn_tokens",
                 "less than rollout.min_new_tokens = 5");
  expect_refused({"rollout.server.port=65535"}, "rollout.server.port", "2 teams generate", 2);
  EXPECT_TRUE(
      plan_of({kProgram, "rollout.max_session_tokens=16", "rollout.server.port=65534"}, 2).errors.empty());
}

TEST(AgentRules, RewardFunctionsAreNotNeededBesideAProgram) {
  std::string text = kMinimalConfig;
  text.erase(text.find("[reward]"));
  EXPECT_TRUE(plan_of({kProgram}, 1, text).errors.empty());
}

TEST(AgentRules, SftHasNoSessions) {
  const PlanResult result = plan_of({kProgram}, 1, kMinimalSft);
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].key, "rollout.harness");
}

TEST(AgentRules, KeysWithoutAProgramAreSaid) {
  const PlanResult result = plan_of({"rollout.max_turns=5", "rollout.server.port=8000"});
  int said = 0;
  for (const std::string& warning : result.warnings)
    said += warning.find("no program plays sessions") != std::string::npos;
  EXPECT_EQ(said, 2);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
