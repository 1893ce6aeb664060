// The recipes of conf/: each is legal, and those of large models fit into the memory of the GPUs that they
// name.

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "src/config/load.h"
#include "src/core/file.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/plan.h"
#include "src/run/verbs/check_command.h"

namespace temper {
namespace {

using Words = std::vector<std::string>;

constexpr int64_t kGiB = int64_t{1} << 30;

ModelConfig shape(const char* family, int64_t hidden, int64_t layers, int64_t heads, int64_t feed_forward,
                  int64_t vocabulary) {
  ModelConfig model{.family = family,
                    .vocab_size = vocabulary,
                    .hidden_size = hidden,
                    .intermediate_size = feed_forward,
                    .num_layers = layers,
                    .num_heads = heads,
                    .num_kv_heads = 8,
                    .head_dim = 128,
                    .max_position_embeddings = 40960,
                    .qk_norm = std::string(family) == "qwen3",
                    .rope = {},
                    .eos_token_ids = {}};
  return model;
}

ModelConfig published(const std::string& name) { return read_config_facts("conf/models/" + name + ".json"); }

struct Recipe {
  const char* file;
  int ranks;
  ModelConfig model;
  int64_t parameters;  // as published
  int tp, pp;          // of the trainer
  int rollout_tp = 8, rollout_pp = 1;
};

std::vector<Recipe> large_recipes() {
  return {
      {"conf/qwen3_32b_grpo_32gpu.toml", 32, shape("qwen3", 5120, 64, 64, 25600, 151936), 32762123264, 8, 1},
      {"conf/llama3.1_70b_grpo_64gpu.toml", 64, shape("llama", 8192, 80, 64, 28672, 128256), 70553706496, 8,
       2},
      {"conf/llama3.1_405b_grpo_512gpu.toml", 512, shape("llama", 16384, 126, 128, 53248, 128256),
       405853388800, 8, 16},
      {"conf/qwen3_30b_a3b_grpo_8gpu.toml", 8, published("Qwen3-30B-A3B"), 30532122624, 1, 2, 1, 2},
      {"conf/qwen3_30b_a3b_ep_grpo_8gpu.toml", 8, published("Qwen3-30B-A3B"), 30532122624, 1, 1, 4, 1},
      {"conf/qwen1.5_moe_a2.7b_grpo_8gpu.toml", 8, published("Qwen1.5-MoE-A2.7B"), 14315784192, 1, 1, 1, 1},
      {"conf/mixtral_8x7b_grpo_8gpu.toml", 8, published("Mixtral-8x7B-v0.1"), 46702792704, 1, 4, 1, 4},
      {"conf/qwen2.5_7b_dapo_8gpu.toml", 8, published("Qwen2.5-7B"), 7615616512, 1, 1, 1, 1},
      {"conf/qwen3_8b_gspo_8gpu.toml", 8, published("Qwen3-8B"), 8190735360, 1, 1, 1, 1},
      {"conf/qwen3.5_9b_grpo_8gpu.toml", 8, published("Qwen3.5-9B"), 8953803264, 1, 1, 1, 1},
      {"conf/qwen3.5_27b_grpo_8gpu.toml", 8, published("Qwen3.5-27B"), 26895998464, 4, 1, 4, 1},
      {"conf/qwen3.5_35b_a3b_grpo_8gpu.toml", 8, published("Qwen3.5-35B-A3B"), 34660610688, 1, 1, 4, 1}};
}

std::string all_errors(const PlanResult& result) {
  std::string text;
  for (const PlanError& error : result.errors) text += error.key + ": " + error.message + "\n";
  return text;
}

TEST(Recipes, AreLegal) {
  std::set<std::string> large;
  for (const Recipe& recipe : large_recipes()) large.insert(recipe.file);
  int recipes = 0;
  for (const char* folder : {"conf", "conf/test"})
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string file = entry.path().string();
      if (entry.path().extension() != ".toml" || large.contains(file)) continue;
      SCOPED_TRACE(file);
      const PlanResult result = try_plan(load_config(file, {}).config, 2, shape("qwen3", 64, 2, 8, 128, 320));
      EXPECT_TRUE(result.errors.empty()) << all_errors(result);
      ++recipes;
    }
  EXPECT_GE(recipes, 11);
}

TEST(Recipes, OfLargeModelsFitTheirGpus) {
  for (const Recipe& recipe : large_recipes())
    for (const int64_t memory : {80, 141}) {
      SCOPED_TRACE(::testing::Message() << recipe.file << " on GPUs of " << memory << " GiB");
      EXPECT_EQ(num_parameters(recipe.model), recipe.parameters);
      const PlanResult result = try_plan(load_config(recipe.file, {}).config, recipe.ranks, recipe.model,
                                         {.device = {memory * kGiB}, .host = {64 * kGiB, "a GPU's share"}});
      ASSERT_TRUE(result.errors.empty()) << all_errors(result);
      EXPECT_TRUE(result.warnings.empty()) << result.warnings.front();
      const RunPlan& plan = result.plan;
      EXPECT_EQ(plan.device, Device::cuda);
      EXPECT_LE(peak_bytes(plan), memory * kGiB);
      const RolePlan& trainer = plan.trainer();
      EXPECT_EQ(trainer.tp(), recipe.tp);
      EXPECT_EQ(trainer.pp(), recipe.pp);
      EXPECT_EQ(trainer.grid.size(), recipe.ranks);
      EXPECT_GE(plan.batch.samples_per_update, 64 * trainer.dp()) << "sequences for an even share of work";
    }
}

/// The base is there once, in bf16, and is the reference; what is trained is about a hundredth of it.
TEST(Recipes, OfAdaptersFitOneGpu) {
  const Config config = load_config("conf/qwen3_8b_lora_1gpu.toml", {}).config;
  const PlanResult result = try_plan(config, 1, published("Qwen3-8B"),
                                     {.device = {80 * kGiB}, .host = {64 * kGiB, "a GPU's share"}});
  ASSERT_TRUE(result.errors.empty()) << all_errors(result);
  EXPECT_TRUE(result.warnings.empty()) << result.warnings.front();
  const auto row =
      std::ranges::find_if(result.plan.memory, [](const MemoryRow& r) { return r.phase == "train"; });
  ASSERT_NE(row, result.plan.memory.end());
  int64_t state = 0;
  for (const char* part : {"weights", "gradients", "optimizer"}) {
    EXPECT_GT(MemoryRow::bytes_of(row->device, part), 0) << part;
    state += MemoryRow::bytes_of(row->device, part);
  }
  EXPECT_LE(state, 20'000'000'000);
  EXPECT_EQ(MemoryRow::bytes_of(row->device, "reference_weights"), 0);
  EXPECT_FALSE(result.plan.optimizer_in_host);
}

/// Seven ranks of an axis are no layout, and the rule names those that are.
TEST(Recipes, OfLargeModelsNameTheLegalLayouts) {
  for (const Recipe& recipe : large_recipes()) {
    SCOPED_TRACE(recipe.file);
    const std::pair<const char*, int> keys[] = {{"roles.trainer.tp", recipe.tp},
                                                {"roles.trainer.pp", recipe.pp},
                                                {"roles.rollout.tp", recipe.rollout_tp},
                                                {"roles.rollout.pp", recipe.rollout_pp}};
    for (const auto& [key, legal_value] : keys) {
      const Config config = load_config(recipe.file, {fmt::format("{}=7", key)}).config;
      const std::vector<PlanError> errors = validate(config, recipe.ranks, recipe.model);
      ASSERT_EQ(errors.size(), 1u) << key;
      EXPECT_EQ(errors.front().key, key);
      const std::vector<Json>& legal = errors.front().legal;
      EXPECT_NE(std::find(legal.begin(), legal.end(), Json(legal_value)), legal.end());
      EXPECT_EQ(std::find(legal.begin(), legal.end(), Json(7)), legal.end());
    }
  }
}

/// Parameters as the model cards say.
TEST(Recipes, ModelsAreAsPublished) {
  const std::map<std::string, int64_t> numbers = {{"Qwen3-0.6B", 596049920},
                                                  {"Qwen3-8B", 8190735360},
                                                  {"Qwen3-32B", 32762123264},
                                                  {"Qwen2.5-0.5B", 494032768},
                                                  {"Qwen2.5-7B", 7615616512},
                                                  {"Qwen3-30B-A3B", 30532122624},
                                                  {"Qwen1.5-MoE-A2.7B", 14315784192},
                                                  {"Mixtral-8x7B-v0.1", 46702792704},
                                                  {"Qwen3.5-4B", 4205751296},
                                                  {"Qwen3.5-9B", 8953803264},
                                                  {"Qwen3.5-27B", 26895998464},
                                                  {"Qwen3.5-35B-A3B", 34660610688},
                                                  {"Llama-3.1-70B-Instruct", 70553706496},
                                                  {"Llama-3.1-405B-Instruct", 405853388800}};
  for (const auto& [name, parameters] : numbers)
    EXPECT_EQ(num_parameters(published(name)), parameters) << name;
  for (const auto& [name, folder] :
       {std::pair{"demo", "demo"}, {"demo-sft", "demo"}, {"products", "products"}})
    EXPECT_EQ(read_file(fmt::format("conf/models/{}.json", name), 1 << 20),
              read_file(fmt::format("conf/{}/config.json", folder), 1 << 20))
        << name;
  for (const char* kind : {"moe", "hybrid"})
    EXPECT_EQ(read_file(fmt::format("conf/models/demo-{}.json", kind), 1 << 20),
              read_file(fmt::format("conf/models/demo-{}-sft.json", kind), 1 << 20))
        << kind;
}

/// What `check` is asked of a recipe on any machine.
Words options_of(const std::string& file) {
  for (const Recipe& recipe : large_recipes())
    if (file == recipe.file)
      return {"--ranks", std::to_string(recipe.ranks), "--gpus-per-node", "8", "--device-memory", "80GB"};
  for (const char* name : {"8b_", "9b_"})
    if (file.find(name) != std::string::npos) return {"--device-memory", "141GB"};
  if (file.find("1gpu") != std::string::npos || file.find("products") != std::string::npos)
    return {"--device-memory", "80GB"};
  return {"--ranks", "2"};
}

void expect_planned_elsewhere(const std::string& file) {
  // Folders that nobody has, whatever lies in this one.
  const std::string model = load_config(file, {}).config.model.path;
  Words words{"check", file, "model.path=not-here/" + model, "data.train=not-here/train.jsonl"};
  const CheckOutcome here = check_outcome(parse_command_line(words));
  EXPECT_EQ(here.exit_code, 64) << file;
  const Words more = options_of(file);
  words.insert(words.end(), more.begin(), more.end());
  const CheckOutcome there = check_outcome(parse_command_line(words));
  EXPECT_EQ(there.exit_code, 0) << file << "\n" << there.output;
  const bool fits = there.output.starts_with("fits: the fullest rank takes ");
  EXPECT_TRUE(fits || there.output.starts_with("ok: the fullest rank takes ")) << there.output;
  EXPECT_LE(std::count(there.output.begin(), there.output.end(), '\n'), 25) << there.output;
  EXPECT_NE(there.output.find("\nnot here, so not looked at: model.path (planned from conf/models/"),
            std::string::npos)
      << there.output;
  EXPECT_EQ(there.errors, "");
  words.emplace_back("--all");
  EXPECT_NE(check_outcome(parse_command_line(words)).output.find("; planned from conf/models/"),
            std::string::npos);
}

TEST(Recipes, ArePlannedWithoutModelsAndData) {
  int recipes = 0;
  for (const char* folder : {"conf", "conf/test"})
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".toml") continue;
      expect_planned_elsewhere(entry.path().string());
      ++recipes;
    }
  EXPECT_GE(recipes, 37);
}

double seconds_of(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

CheckOutcome check_on_eight(const std::string& recipe) {
  return check_outcome(parse_command_line({"check", fmt::format("conf/{}.toml", recipe), "--ranks", "8",
                                           "--gpus-per-node", "8", "--device-memory", "80GB", "--all"}));
}

TEST(Recipes, ManyExpertsArePlannedInSeconds) {
  for (const char* name : {"qwen3_30b_a3b_grpo_8gpu", "qwen3_30b_a3b_ep_grpo_8gpu"}) {
    CheckOutcome outcome;
    EXPECT_LE(seconds_of([&] { outcome = check_on_eight(name); }), 3) << name;
    EXPECT_EQ(outcome.exit_code, 0) << name << "\n" << outcome.output;
  }
}

/// With the states of the sequences that run, and the heads of a rank in them.
TEST(Recipes, LargeHybridModelsArePlannedInSeconds) {
  const std::pair<const char*, int64_t> states[] = {
      {"9b_grpo_8gpu", 70582272}, {"27b_grpo_8gpu", 51216384}, {"35b_a3b_grpo_8gpu", 22056960}};
  for (const auto& [name, bytes] : states) {
    CheckOutcome outcome;
    EXPECT_LE(seconds_of([&] { outcome = check_on_eight(fmt::format("qwen3.5_{}", name)); }), 3) << name;
    EXPECT_EQ(outcome.exit_code, 0) << name << "\n" << outcome.output;
    EXPECT_NE(outcome.output.find(fmt::format("of sequences at once in gated delta nets, per rank, {} bytes "
                                              "each",
                                              bytes)),
              std::string::npos)
        << outcome.output;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
