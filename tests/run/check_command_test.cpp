// `temper check` from the command line to its output, on a model folder with nothing but a config.json.

#include "src/run/verbs/check_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "src/core/json.h"
#include "tests/config/config_text.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

const char* const kModel = R"({"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":64,
"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
"vocab_size":320,"max_position_embeddings":256,"rms_norm_eps":1e-6,"rope_theta":10000.0,"tie_word_embeddings":true,
"hidden_act":"silu","torch_dtype":"float32"})";

class Check : public ::testing::Test {
 protected:
  Check() {
    std::filesystem::create_directory(folder_ / "model");
    std::ofstream(folder_ / "model/config.json") << kModel;
    std::ofstream(folder_ / "a.jsonl") << "{\"prompt\":\"1+1=\",\"answer\":\"2\"}\n";
    std::ofstream(folder_ / "x.toml") << kMinimalConfig;
  }
  CheckOutcome check(std::vector<std::string> words) const {
    words.insert(words.begin(), {"check", folder_ / "x.toml"});
    return check_outcome(parse_command_line(words));
  }
  std::vector<std::string> paths() const {
    return {"model.path=" + (folder_ / "model"), "data.train=" + (folder_ / "a.jsonl")};
  }
  TempDir folder_;
};

TEST_F(Check, GoodConfig) {
  auto words = paths();
  words.insert(words.end(), {"--json", "--ranks", "3"});
  const CheckOutcome outcome = check(words);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1);
  const Json json = parse_json(outcome.output, "output");
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["batch"]["updates_total"], 10);
  EXPECT_EQ(json["roles"]["trainer"]["ranks"].size(), 3u);
  const int64_t layer = (64 + 2 * 32) * 64 + 64 * 64 + 3 * 64 * 128 + 2 * 64 + 2 * 16;
  EXPECT_EQ(json["memory"][0]["parts"]["weights"], (320 * 64 + 2 * layer + 64) * 4);
  const CheckOutcome text = check(paths());
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.output.find("updates_total"), std::string::npos);
}

TEST_F(Check, AllPathsAndRulesAtOnce) {
  const CheckOutcome outcome = check({"--json", "model.path=" + (folder_ / "model"),
                                      "train.samples_per_update=5", "rollout.max_new_tokens=256"});
  EXPECT_EQ(outcome.exit_code, 64);
  const Json json = parse_json(outcome.output, "output");
  EXPECT_EQ(json["ok"], false);
  ASSERT_EQ(json["errors"].size(), 3u);
  EXPECT_EQ(json["errors"][0]["key"], "train.samples_per_update");
  EXPECT_EQ(json["errors"][0]["where"], "command line");
  EXPECT_EQ(json["errors"][1]["key"], "rollout.max_new_tokens");
  EXPECT_EQ(json["errors"][2]["key"], "data.train");
  EXPECT_NE(json["errors"][2]["message"].get<std::string>().find("data/a.jsonl does not exist"),
            std::string::npos);
}

TEST_F(Check, WrongKeysAndMissingModel) {
  const Json keys = parse_json(check({"--json", "run.stepz=3", "optimizer.lr=-1"}).output, "output");
  ASSERT_EQ(keys["errors"].size(), 2u);
  EXPECT_TRUE(keys["batch"].is_object() && keys["roles"].is_object() && keys["memory"].is_array());
  const CheckOutcome missing = check({});
  EXPECT_EQ(missing.exit_code, 64);
  EXPECT_NE(missing.output.find("models/tiny does not exist"), std::string::npos);
}

TEST_F(Check, DeviceMemory) {
  auto words = paths();
  words.insert(words.end(), {"--json", "--device-memory", "0.64"});
  const CheckOutcome outcome = check(words);
  EXPECT_EQ(outcome.exit_code, 64);
  const Json json = parse_json(outcome.output, "output");
  ASSERT_EQ(json["errors"].size(), 1u);
  ASSERT_FALSE(json["errors"][0]["legal"].empty()) << outcome.output;
  const std::string key = json["errors"][0]["key"];
  words.push_back(key + "=" + json["errors"][0]["legal"][0].dump());
  EXPECT_EQ(check(words).exit_code, 0);
}

TEST_F(Check, WrongModelIsData) {
  std::ofstream(folder_ / "model/config.json") << "{\"model_type\":\"gpt9\"}";
  expect_error(Exit::data, {"config.json"}, "family", [&] { check(paths()); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
