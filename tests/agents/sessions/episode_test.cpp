// What programs are told, and what their last lines say.

#include "src/agents/sessions/episode.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace temper {
namespace {

TEST(Episode, StartsWithALineAndVariables) {
  const EpisodeStart start{
      .id = "7.1", .record = {{"q", "1+1\n"}}, .seed = 5, .url = "http://h:1/sessions/7.1", .key = "k"};
  EXPECT_EQ(start_line(start),
            R"({"id":"7.1","record":{"q":"1+1\n"},"seed":5,"base_url":"http://h:1/sessions/7.1/v1",)"
            R"("anthropic_base_url":"http://h:1/sessions/7.1","api_key":"k","model":"policy"})");
  const auto list = start_variables(start);
  const std::map<std::string, std::string> variables(list.begin(), list.end());
  EXPECT_EQ(variables.at("OPENAI_BASE_URL"), "http://h:1/sessions/7.1/v1");
  EXPECT_EQ(variables.at("ANTHROPIC_BASE_URL"), "http://h:1/sessions/7.1");
  EXPECT_EQ(variables.at("ANTHROPIC_SMALL_FAST_MODEL"), "policy-untrained");
}

TEST(Episode, SeedsDiffer) {
  std::set<uint32_t> seeds;
  for (int32_t i = 0; i < 10; ++i)
    seeds.insert({episode_seed(1, 2, i), episode_seed(2, 2, i), episode_seed(1, 3, i)});
  EXPECT_EQ(seeds.size(), 30u);
  EXPECT_EQ(episode_seed(1, 2, 3), episode_seed(1, 2, 3));
}

TEST(Episode, LastLines) {
  const SessionEnd end = end_line(R"({"reward": 0.5, "parts": {"a": 1, "b": -2.5}, "note": [1]})");
  EXPECT_EQ(end.reason, EndReason::done);
  EXPECT_EQ(end.reward, 0.5);
  EXPECT_EQ(end.parts, (std::vector<std::pair<std::string, double>>{{"a", 1}, {"b", -2.5}}));
  for (const char* none : {"{}", R"({"reward": null, "parts": null})"}) {
    EXPECT_EQ(end_line(none).reason, EndReason::done) << none;
    EXPECT_FALSE(end_line(none).reward) << none;
  }
  for (const char* wrong :
       {"", "done", "1", "[]", R"({"reward": "1"})", R"({"reward": true})", R"({"reward": 1e999})",
        R"({"reward": NaN})", R"({"reward": 1, "parts": [1]})", R"({"reward": 1, "parts": {"a": "x"}})",
        R"({"reward": 1, "reward": 2})", R"({"reward": 1} x)", "{\"reward\": 1, \"x\": \"\xff\"}"}) {
    const SessionEnd nonsense = end_line(wrong);
    EXPECT_EQ(nonsense.reason, EndReason::nonsense) << wrong;
    EXPECT_FALSE(nonsense.reward) << wrong;
    EXPECT_TRUE(nonsense.parts.empty()) << wrong;
  }
  EXPECT_EQ(end_line("{\"x\": \"" + std::string(2 << 20, 'a') + "\"}").reason, EndReason::nonsense);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
