// `temper check` from the command line to its output, on a model folder with nothing but a config.json and a
// tokenizer that knows digits alone.

#include "src/run/verbs/check_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>

#include "src/core/json.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/report/plan_json.h"
#include "src/run/plan/report/sizes.h"
#include "src/run/plan/report/text_lines.h"
#include "tests/config/config_text.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

const char* const kModel = R"({"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":64,
"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
"vocab_size":320,"max_position_embeddings":256,"rms_norm_eps":1e-6,"rope_theta":10000.0,"tie_word_embeddings":true,
"hidden_act":"silu","torch_dtype":"float32"})";

using Words = std::vector<std::string>;

bool says(const Json& warnings, const std::string& text) {
  return std::any_of(warnings.begin(), warnings.end(), [&](const Json& warning) {
    return warning.get<std::string>().find(text) != std::string::npos;
  });
}

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
  void change_model(const Json& keys) const {
    Json model = parse_json(kModel, "config.json");
    model.update(keys);
    std::ofstream(folder_ / "model/config.json") << model;
  }
  std::vector<std::string> paths() const {
    return {"model.path=" + (folder_ / "model"), "data.train=" + (folder_ / "a.jsonl"), "model.init=random",
            "tokenizer.path=tests/golden/tinyzero", "data.chat=false"};
  }
  /// What `check --json` says of a data file of these lines.
  Json with_data(const std::string& lines, const std::vector<std::string>& more, int code) const {
    std::ofstream(folder_ / "a.jsonl") << lines;
    auto words = paths();
    words.emplace_back("--json");
    words.insert(words.end(), more.begin(), more.end());
    const CheckOutcome outcome = check(words);
    EXPECT_EQ(outcome.exit_code, code) << outcome.output;
    return parse_json(outcome.output, "output");
  }
  TempDir folder_;
};

TEST_F(Check, ContextBeyondTheRangeOfDynamicRopeNamesIt) {
  auto words = paths();
  words.push_back("model.context_tokens=2000");
  const CheckOutcome other = check(words);
  EXPECT_EQ(other.exit_code, 64);
  EXPECT_EQ(other.errors.find("dynamic"), std::string::npos) << other.errors;
  change_model({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}});
  const CheckOutcome beyond = check(words);
  EXPECT_EQ(beyond.exit_code, 64);
  EXPECT_NE(beyond.errors.find("rope type \"dynamic\" reaches to max_position_embeddings = 256"),
            std::string::npos)
      << beyond.errors;
  words.back() = "model.context_tokens=256";
  EXPECT_EQ(check(words).exit_code, 0);
}

TEST_F(Check, HeadsThatAGpuCannotRunAreForTheCpu) {
  change_model({{"head_dim", 100}});
  auto words = paths();
  words.insert(words.end(), {"--ranks", "1", "--json"});
  EXPECT_EQ(check(words).exit_code, 0);
  words.push_back("run.device=cuda");
  const Json json = parse_json(check(words).output, "output");
  ASSERT_EQ(json["errors"].size(), 1u) << json;
  EXPECT_EQ(json["errors"][0]["key"], "run.device");
  EXPECT_EQ(json["errors"][0]["legal"], Json({"cpu"}));
  const auto message = json["errors"][0]["message"].get<std::string>();
  EXPECT_NE(message.find("head_dim is 100; attention on a GPU takes multiples of 8"), std::string::npos)
      << message;
}

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
  words.assign(1, "--all");
  for (const std::string& path : paths()) words.push_back(path);
  const CheckOutcome text = check(words);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.output.find("updates_total"), std::string::npos);
}

/// What no machine has is refused for this one, and only warned of for another one.
TEST_F(Check, MemoryThatThisMachineDoesNotHave) {
  auto words = paths();
  words.insert(words.end(), {"--json", "rollout.prompts_per_step=100000000"});
  const CheckOutcome here = check(words);
  EXPECT_EQ(here.exit_code, 64);
  const Json error = parse_json(here.output, "output")["errors"].at(0);
  EXPECT_NE(error["message"].get<std::string>().find("this machine's"), std::string::npos) << error;
  EXPECT_EQ(error["key"], "rollout.prompts_per_step");
  words.back() = fmt::format("rollout.prompts_per_step={}", error["legal"].at(0).get<int64_t>());
  EXPECT_EQ(check(words).exit_code, 0) << "what is proposed fits";
  words.back() = "rollout.prompts_per_step=100000000";
  words.insert(words.end(), {"--ranks", "2"});
  const CheckOutcome there = check(words);
  EXPECT_EQ(there.exit_code, 0);
  EXPECT_NE(there.output.find("more than here (this machine's"), std::string::npos) << there.output;
}

/// No list grows with the pages of a cache, or with the tokens of a micro-batch that nothing could hold.
TEST_F(Check, SizesThatNoMachineHasAreCountedAtOnce) {
  auto words = paths();
  words.insert(words.end(), {"rollout.kv_memory=1TiB", "train.max_tokens_per_microbatch=130000000",
                             "rollout.prompts_per_step=1000000", "--json", "--device-memory", "80"});
  const std::clock_t begin = std::clock();  // of this process: others may have the machine
  const CheckOutcome outcome = check(words);
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 30);
  EXPECT_NE(outcome.output.find("memory"), std::string::npos) << outcome.output;
}

/// What a GPU holds is held against the memory of the GPU, and the rest of the process against the host's.
TEST_F(Check, EachMemoryHasItsLimit) {
  const Config config =
      load_text(kMinimalConfig, {"run.device=cuda", "train.offload.optimizer=false"}).config;
  const ModelConfig model = read_model_facts(folder_ / "model");
  const auto plan_with = [&](const MemoryLimits& limits) { return try_plan(config, 1, model, limits); };
  const RunPlan plan = plan_with({}).plan;
  const int64_t device = peak_bytes(plan), host = host_peak_bytes(plan);
  ASSERT_NE(device, host);
  EXPECT_TRUE(plan_with({{device}, {host}}).errors.empty()) << "held against the other one's limit";
  const PlanResult little_host = plan_with({{}, {host - 1, "the host"}});
  ASSERT_EQ(little_host.errors.size(), 1u);
  EXPECT_NE(little_host.errors[0].message.find("(the host)"), std::string::npos);
  const PlanResult little_device = plan_with({{device - 1, "the card"}, {host}});
  ASSERT_EQ(little_device.errors.size(), 1u);
  EXPECT_NE(little_device.errors[0].message.find("(the card)"), std::string::npos);
}

/// "auto" moves to host memory what the card has no room for, the reference first; false does not, and is
/// told that true would fit.
TEST_F(Check, OffloadsWhatDoesNotFit) {
  const std::vector<std::string> keys{"run.device=cuda", "algorithm.kl_coef=0.1"};
  const ModelConfig model = read_model_facts(folder_ / "model");
  const auto plan_with = [&](int64_t limit, std::vector<std::string> more = {}) {
    more.insert(more.end(), keys.begin(), keys.end());
    return try_plan(load_text(kMinimalConfig, more).config, 1, model, {{limit, "the card"}, {}});
  };
  const auto peak = [](const PlanResult& result) { return peak_bytes(result.plan); };
  const std::vector<std::string> one{"roles.reference.offload=true"},
      both{"roles.reference.offload=true", "train.offload.optimizer=true"};
  const int64_t held = peak(plan_with(0)), less = peak(plan_with(0, one)), least = peak(plan_with(0, both));
  ASSERT_GT(held, less);
  ASSERT_GT(less, least);
  for (const auto& [limit, reference, optimizer] : {std::tuple{held, false, false},
                                                    {held - 1, true, false},
                                                    {less, true, false},
                                                    {less - 1, true, true}}) {
    const PlanResult result = plan_with(limit);
    EXPECT_TRUE(result.errors.empty()) << limit;
    EXPECT_EQ(result.plan.role("reference")->in_host, reference) << limit;
    EXPECT_EQ(result.plan.optimizer_in_host, optimizer) << limit;
  }
  const PlanResult refused =
      plan_with(less, {"train.offload.optimizer=false", "roles.reference.offload=false"});
  ASSERT_EQ(refused.errors.size(), 1u);
  EXPECT_NE(refused.errors[0].message.find("roles.reference.offload = true needs"), std::string::npos)
      << refused.errors[0].message;
  const Config on_cpu = load_text(kMinimalConfig, {"train.offload.optimizer=true"}).config;
  const PlanResult cpu = try_plan(on_cpu, 1, model);
  ASSERT_EQ(cpu.errors.size(), 1u);
  EXPECT_EQ(cpu.errors[0].key, "train.offload.optimizer");
}

/// Ranks alike are one row: a plan for many ranks takes no longer than they take to be counted.
TEST_F(Check, MemoryOfManyRanksIsThatOfTheirKinds) {
  const int ranks = 65536;
  const Config config =
      load_text(kMinimalConfig, {"roles.rollout.ranks=0-39999", "roles.trainer.ranks=40000-65535"}).config;
  const PlanResult result = try_plan(config, ranks, read_model_facts(folder_ / "model"));
  ASSERT_TRUE(result.errors.empty());
  ASSERT_EQ(result.plan.memory.size(), 1u + 2 * 2)
      << "generate; train and save of the writer and of the others";
  std::map<std::string, size_t> of_phase;
  for (const MemoryRow& row : result.plan.memory) of_phase[row.phase] += row.ranks.size();
  EXPECT_EQ(of_phase,
            (std::map<std::string, size_t>{{"generate", 40000}, {"save", 25536}, {"train", 25536}}));
  const Json rows = plan_json(result, {})["memory"];
  ASSERT_EQ(rows.size(), 40000u + 2 * 25536);
  EXPECT_EQ(rows[40001]["rank"], 40000);
  EXPECT_EQ(rows[40001]["phase"], "save");
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

TEST_F(Check, NodesOfAnySize) {
  const auto says = [&](const char* ranks, const char* per_node, const char* text) {
    auto words = paths();
    for (const char* word :
         {"--all", "--ranks", ranks, "--gpus-per-node", per_node, "rollout.prompts_per_step=64"})
      words.emplace_back(word);
    const CheckOutcome outcome = check(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find(text), std::string::npos) << text << " in " << outcome.output;
  };
  says("3", "65536", "ranks 0-2");
  says("7", "3", "ranks 6-6");
  says("20", "2", "node n has ranks 2 n to 2 n + 1");
}

/// Where weights and data are elsewhere: what can be planned is shown beside what is missing.
TEST_F(Check, PlansWithoutTheFilesOfARun) {
  const auto plans = [&](const std::vector<std::string>& words, int code, const char* key) {
    const CheckOutcome text = check(words);
    EXPECT_EQ(text.exit_code, code) << text.output;
    EXPECT_TRUE(text.output.starts_with("would not start: 1 error (the fullest rank takes ")) << text.output;
    EXPECT_NE(text.output.find("\n  memory "), std::string::npos) << text.output;
    EXPECT_TRUE(text.errors.starts_with(fmt::format("temper: {} is refused\n", key))) << text.errors;
    std::vector<std::string> as_json = words;
    as_json.emplace_back("--json");
    const Json json = parse_json(check(as_json).output, "output");
    EXPECT_EQ(json["ok"], false);
    EXPECT_EQ(json["errors"].at(0)["key"], key);
    EXPECT_FALSE(json["memory"].empty() || json["roles"].empty() || json["batch"].empty());
  };
  auto words = paths();
  words.emplace_back("model.init=load");
  plans(words, 65, "model.path");
  words = paths();
  words.emplace_back("data.train=elsewhere.jsonl");
  plans(words, 64, "data.train");
}

/// A plan for another machine goes without what is not here, and says so; what is wrong stays wrong.
TEST_F(Check, PlansForAnotherMachineWithoutItsFiles) {
  std::filesystem::create_directory(folder_ / "models");
  std::ofstream(folder_ / "models/tiny.json") << kModel;
  const Words elsewhere{"model.path=elsewhere/tiny", "data.train=elsewhere/a.jsonl"};
  for (const Words& options :
       {Words{"--ranks", "2"}, Words{"--gpus-per-node", "1"}, Words{"--device-memory", "80GB"}}) {
    Words words = elsewhere;
    words.insert(words.end(), options.begin(), options.end());
    const CheckOutcome text = check(words);
    EXPECT_EQ(text.exit_code, 0) << text.output;
    const size_t second = text.output.find('\n') + 1;
    EXPECT_TRUE(
        text.output.substr(second).starts_with("not here, so not looked at: model.path (planned from " +
                                               (folder_ / "models/tiny.json") + "), data.train\n"))
        << text.output;
    EXPECT_EQ(text.errors, "");
    words.emplace_back("--json");
    const Json json = parse_json(check(words).output, "output");
    EXPECT_EQ(json["ok"], true);
    ASSERT_EQ(json["absent"].size(), 2u) << json;
    EXPECT_EQ(json["absent"][1]["key"], "data.train");
  }
  EXPECT_EQ(check(elsewhere).exit_code, 64);
  Words unknown{"model.path=elsewhere/huge", "--ranks", "2"};
  EXPECT_EQ(check(unknown).exit_code, 64);
  Words wrong = elsewhere;
  wrong.insert(wrong.end(), {"--ranks", "2", "train.samples_per_update=5"});
  EXPECT_EQ(check(wrong).exit_code, 64);
  wrong.back() = "checkpoint.resume=elsewhere/run";
  EXPECT_EQ(check(wrong).exit_code, 64);
}

TEST_F(Check, SaysHowToGetModelAndData) {
  const CheckOutcome outcome = check({"model.path=Qwen/Qwen3-0.6B", "data.train=openai/gsm8k"});
  EXPECT_EQ(outcome.exit_code, 64);
  for (const char* part : {"`hf download Qwen/Qwen3-0.6B --local-dir models/Qwen3-0.6B`", "huggingface-cli",
                           "`hf download openai/gsm8k --repo-type dataset", "tools/gsm8k_data.py"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << "\n" << outcome.errors;
}

TEST_F(Check, WrongKeysAndMissingModel) {
  const Json keys = parse_json(check({"--json", "run.stepz=3", "optimizer.lr=-1"}).output, "output");
  ASSERT_EQ(keys["errors"].size(), 2u);
  EXPECT_TRUE(keys["batch"].is_object() && keys["roles"].is_object() && keys["memory"].is_array());
  const CheckOutcome missing = check({});
  EXPECT_EQ(missing.exit_code, 64);
  EXPECT_NE(missing.errors.find("models/tiny does not exist"), std::string::npos);
  EXPECT_EQ(missing.output, "would not start: 2 errors\n");
}

TEST_F(Check, DeviceMemory) {
  auto words = paths();
  words.insert(words.end(), {"--json", "--device-memory", "1.64"});
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

/// Lines with prompts of 1, 2, ... tokens.
std::string growing(int count) {
  std::string lines;
  for (int i = 1; i <= count; ++i)
    lines +=
        fmt::format("{{\"prompt\":\"{}\",\"answer\":\"{}\"}}\n", std::string(static_cast<size_t>(i), '7'), i);
  return lines;
}

TEST_F(Check, OpensTheData) {
  const Json data = with_data(growing(100), {}, 0).at("data");
  EXPECT_EQ(data["rows"], 100);
  EXPECT_EQ(data["looked_at"], 100);
  EXPECT_EQ(data["first_prompt"]["text"], "7");
  EXPECT_EQ(data["first_prompt"]["ids"], Json::array({10}));
  EXPECT_EQ(data["lengths"], (Json{{"p50", 50}, {"p95", 95}, {"max", 100}}));
  EXPECT_EQ(data["overlong"], 0);
  EXPECT_EQ(data["answers"]["unreadable"], 0);
  auto words = paths();
  words.emplace_back("--all");
  const CheckOutcome text = check(words);
  EXPECT_EQ(text.exit_code, 0);
  for (const char* part : {"p50 50", "p95 95, max 100", "all rows", "[10]", "data.overlong"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << "\n" << text.output;
}

TEST_F(Check, SaysWhatIsOverlongAndWhatBecomesOfIt) {
  const std::string limit = "rollout.max_prompt_tokens=98", lines = growing(100);
  const Json refused = with_data(lines, {limit}, 65);
  EXPECT_EQ(refused["data"]["overlong"], 2);
  ASSERT_EQ(refused["errors"].size(), 1u);
  EXPECT_EQ(refused["errors"][0]["key"], "data.overlong");
  const std::string way_out = refused["errors"][0]["legal"].at(0);
  EXPECT_EQ(with_data(lines, {limit, "data.overlong=" + way_out}, 0)["data"]["overlong"], 2);
  EXPECT_EQ(with_data(lines, {limit, "data.overlong=truncate-left"}, 0)["data"]["overlong"], 2);
  const Json none = with_data("{\"prompt\":\"77\",\"answer\":\"1\"}\n",
                              {"rollout.max_prompt_tokens=1", "data.overlong=drop"}, 65);
  EXPECT_EQ(none["errors"][0]["key"], "rollout.max_prompt_tokens");
}

TEST_F(Check, SaysWhichAnswersTheRewardsCannotRead) {
  const Json json = with_data(growing(3) + "{\"prompt\":\"1\",\"answer\":\"many\"}\n{\"prompt\":\"1\"}\n",
                              {"reward.functions=[\"arithmetic\"]"}, 65);
  EXPECT_EQ(json["data"]["answers"]["unreadable"], 2);
  EXPECT_EQ(json["errors"][0]["key"], "reward.functions");
  EXPECT_NE(json["errors"][0]["message"].get<std::string>().find("2 of 5"), std::string::npos);
  EXPECT_NE(json["errors"][0]["where"].get<std::string>().find("a.jsonl:4"), std::string::npos);
}

TEST_F(Check, LooksAtASampleOfManyRows) {
  const Json data = with_data(growing(1) + std::string(), {}, 0).at("data");
  EXPECT_EQ(data["sample"], "all rows");
  std::string lines;
  for (int i = 0; i < 5000; ++i) lines += "{\"prompt\":\"1\",\"answer\":\"2\"}\n";
  const Json many = with_data(lines, {}, 0).at("data");
  EXPECT_EQ(many["rows"], 5000);
  EXPECT_LT(many["looked_at"], 5000);
  EXPECT_EQ(many["sample"], "evenly spaced rows");
}

TEST_F(Check, RefusesAFolderWithoutTokenizerOrWeights) {
  const auto refuses = [&](const std::string& more, const std::string& key, const std::string& part) {
    const Json json = with_data(growing(3), {more}, 65);
    ASSERT_EQ(json["errors"].size(), 1u) << json;
    EXPECT_EQ(json["errors"][0]["key"], key);
    EXPECT_NE(json["errors"][0]["message"].get<std::string>().find(part), std::string::npos) << json;
  };
  refuses("tokenizer.path=" + (folder_ / "model"), "tokenizer.path", "no tokenizer.json");
  refuses("model.init=load", "model.path", "no weights");
  with_data(growing(3), {"tokenizer.path=" + (folder_ / "nowhere")}, 64);
}

TEST_F(Check, WarnsOfEndTokensOutsideOfTheVocabulary) {
  std::ofstream(folder_ / "model/generation_config.json") << R"({"eos_token_id": [1, 320]})";
  const Json warnings = with_data(growing(4), {}, 0).at("warnings");
  ASSERT_EQ(warnings.size(), 1u) << warnings;
  EXPECT_NE(warnings[0].get<std::string>().find("eos_token_id 320"), std::string::npos);
}

/// Ids of the data, not those that the tokenizer could make: folders have tokenizers with more of them.
TEST_F(Check, IdsOfTheDataAreKnownToTheModel) {
  change_model({{"vocab_size", 12}});
  const std::string lines = growing(4) + "{\"prompt\":\"1\",\"answer\":\"9\"}\n";
  const Json fits = with_data(lines, {}, 0);
  EXPECT_TRUE(says(fits["warnings"], "the tokenizer has ids up to")) << fits["warnings"];
  change_model({{"vocab_size", 10}});
  const Json json = with_data(lines, {}, 65);
  ASSERT_EQ(json["errors"].size(), 1u) << json;
  EXPECT_EQ(json["errors"][0]["key"], "data.train");
  EXPECT_NE(json["errors"][0]["message"].get<std::string>().find("id 10; the ids of the model are 0 to 9"),
            std::string::npos)
      << json;
  EXPECT_TRUE(json["errors"][0]["where"].get<std::string>().ends_with("a.jsonl:1"));
}

TEST_F(Check, WarnsOfAnswersThatNoResponseMatches) {
  const auto lines = [](const std::vector<std::string>& answers) {
    std::string text;
    for (const std::string& answer : answers)
      text += fmt::format("{{\"prompt\":\"1\",\"answer\":{}}}\n", answer);
    return text;
  };
  const Json gsm8k = with_data(lines({"\"2\"", "\"so many\"", "\"$18\"", "[\"x\", \"#### 1,200\"]"}),
                               {"reward.functions=[\"gsm8k\"]"}, 0);
  EXPECT_EQ(gsm8k["data"]["answers"]["unmatched"], 2);
  EXPECT_TRUE(says(gsm8k["warnings"], "2 of 4 answers can never be matched")) << gsm8k["warnings"];
  EXPECT_TRUE(says(gsm8k["warnings"], "a.jsonl:2, by the reward \"gsm8k\": \"so many\" is no number"))
      << gsm8k["warnings"];
  const Json exact = with_data(lines({"\" \"", "\"2\"", "\"\"", "3"}), {"reward.functions=[\"exact\"]"}, 0);
  EXPECT_TRUE(says(exact["warnings"], "2 of 4 answers")) << exact["warnings"];
  EXPECT_TRUE(says(exact["warnings"], "the answer is empty")) << exact["warnings"];
}

TEST_F(Check, WarnsOfDataThatIsLessThanAStep) {
  const std::string words = "and a step draws 4: it sees some of them twice";
  const Json few = with_data(growing(3), {}, 0);
  EXPECT_TRUE(says(few["warnings"], "data.train has 3 lines " + words)) << few["warnings"];
  EXPECT_TRUE(
      says(with_data(growing(5), {"rollout.max_prompt_tokens=3", "data.overlong=drop"}, 0)["warnings"],
           "data.train has 3 lines that are not too long " + words));
  EXPECT_FALSE(says(with_data(growing(4), {}, 0)["warnings"], words));
}

TEST_F(Check, WarnsOfARateAndOfRunsThatNoModelHas) {
  const auto warned = [&](const std::string& word, const char* of) {
    return says(with_data(growing(4), {word}, 0)["warnings"], of);
  };
  EXPECT_TRUE(warned("optimizer.lr=0.02", "optimizer.lr = 0.02 is above 0.01"));
  EXPECT_FALSE(warned("optimizer.lr=0.01", "is above 0.01"));
  EXPECT_TRUE(warned("train.recompute.num_layers=3", "num_layers = 3, and the model has 2 layers"));
  EXPECT_FALSE(warned("train.recompute.num_layers=2", "and the model has"));
}

/// A value that no run could have is answered like one that this run cannot have.
TEST_F(Check, NamesEveryLegalNumberOfALayoutKey) {
  const std::map<std::string, Json> legal = {
      {"tp", {1, 2, 4}}, {"cp", {1, 2, 4}}, {"pp", {1, 2}}, {"vpp", {1}}};
  for (const auto& [name, numbers] : legal)
    for (const char* role : {"trainer", "reference"})
      for (const char* value : {"0", "-2", "\"two\"", "3"}) {
        const std::string key = fmt::format("roles.{}.{}", role, name);
        const Json json = with_data(
            growing(4), {"--ranks", "4", "algorithm.kl_coef=0.1", fmt::format("{}={}", key, value)}, 64);
        ASSERT_EQ(json["errors"].size(), 1u) << json;
        EXPECT_EQ(json["errors"][0]["key"], key);
        EXPECT_EQ(json["errors"][0]["legal"], numbers) << key << "=" << value;
      }
  const Json with_others =
      with_data(growing(4), {"--ranks", "4", "roles.trainer.pp=2", "roles.trainer.tp=0"}, 64);
  EXPECT_EQ(with_others["errors"][0]["legal"], Json({1, 2}));
  const Json two = with_data(growing(4), {"--ranks", "4", "roles.trainer.pp=0", "roles.trainer.tp=0"}, 64);
  ASSERT_EQ(two["errors"].size(), 2u);
  EXPECT_EQ(two["errors"][1]["legal"], Json({1, 2, 4}));
  EXPECT_EQ(with_data(growing(4), {"roles.trainer.zero=0"}, 64)["errors"][0]["legal"], Json({1, 2, 3}));
}

TEST_F(Check, IsOneScreen) {
  with_data("{\"prompt\":\"" + std::string(700, '1') + "\",\"answer\":\"2\"}\n" + growing(3),
            {"data.overlong=drop"}, 0);
  auto words = paths();
  words.emplace_back("data.overlong=drop");
  const CheckOutcome text = check(words);
  EXPECT_TRUE(text.output.starts_with("fits: the fullest rank takes ")) << text.output;
  EXPECT_LE(std::count(text.output.begin(), text.output.end(), '\n'), 25) << text.output;
  for (const char* part :
       {"10 steps, each 4 prompts x 8 samples", "13.3 epochs", "a.jsonl: 4 lines", "all 4 answers",
        "1 of 4 too long: left out", "700 tokens; answer \"2\"\n  | 1111"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
  EXPECT_EQ(text.output.find("kv_cache"), std::string::npos);
  words.emplace_back("--memory");
  const CheckOutcome memory = check(words);
  EXPECT_TRUE(memory.output.starts_with("fits: ")) << memory.output;
  for (const char* part :
       {"host, MiB               generate       train        save\n", "  kv_cache ", "  together "})
    EXPECT_NE(memory.output.find(part), std::string::npos) << part << " in\n" << memory.output;
}

/// A plan for other ranks than one has no limit, but this machine to compare with.
TEST_F(Check, SaysWhatThisMachineHasForEachRank) {
  auto words = paths();
  words.insert(words.end(), {"run.device=cpu", "--ranks", "2"});
  const CheckOutcome outcome = check(words);
  const std::string verdict = outcome.output.substr(0, outcome.output.find('\n'));
  EXPECT_TRUE(verdict.starts_with("ok: ")) << verdict;
  EXPECT_NE(verdict.find("; this machine has "), std::string::npos) << verdict;
}

/// What does not fit is shown with what it takes; the way out is an error.
TEST_F(Check, SaysWhatDoesNotFit) {
  auto words = paths();
  words.insert(words.end(), {"run.device=cpu", "--device-memory", "0.05"});
  const CheckOutcome outcome = check(words);
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_TRUE(outcome.output.starts_with("does not fit: train needs ")) << outcome.output;
  EXPECT_NE(outcome.output.find(" of host memory on rank 0, which has 51.2 MiB\n"), std::string::npos);
  EXPECT_EQ(outcome.output.find("--device-memory)"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.errors.find("(--device-memory)"), std::string::npos) << outcome.errors;
}

/// A run that has been under way says how long its steps take.
TEST_F(Check, KnowsThePaceOfARunThatWasThere) {
  std::filesystem::create_directories(folder_ / "runs/first");
  const std::string name = std::string("run.dir=") + (folder_ / "runs");
  EXPECT_FALSE(with_data(growing(4), {name, "run.name=first"}, 0).contains("step_time"));
  std::string lines = "{\"step\":1,\"timing_s/step\":900.0}\n";
  for (int step = 2; step <= 22; ++step)
    lines += fmt::format("{{\"step\":{},\"timing_s/gen\":1,\"timing_s/step\":{}}}\n", step,
                         step == 22 ? 50 : 12.5);
  std::ofstream(folder_ / "runs/first/metrics.jsonl") << lines << "{\"step\":23,\"timing_s/st";
  const Json time = with_data(growing(4), {name, "run.name=first"}, 0).at("step_time");
  EXPECT_EQ(time["seconds"], 12.5);
  EXPECT_TRUE(time["from"].get<std::string>().starts_with("as steps 3 to 22 of ")) << time;
  auto words = paths();
  words.insert(words.end(), {name, "run.name=first"});
  EXPECT_NE(check(words).output.find("about 12 s a step, 2.1 min in all (as steps"), std::string::npos);
  std::ofstream(folder_ / "runs/first/config.toml") << "[rollout]\nmax_new_tokens = 7\n";
  EXPECT_NE(check(words).output.find("took with another model, batch or length)"), std::string::npos);
}

TEST_F(Check, RandomWeightsHaveNoDigest) {
  const Json json = with_data(growing(3), {"model.digest=0123456789abcdef0123456789abcdef"}, 64);
  EXPECT_EQ(json["errors"].at(0)["key"], "model.digest");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // what is said depends on the GPUs that are here
  return RUN_ALL_TESTS();
}
