// Plans of hybrid models: what their sequences keep is counted, shapes that nothing takes are refused.

#include <gtest/gtest.h>

#include "src/rollout/request.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/plan.h"
#include "tests/config/config_text.h"
#include "tests/run/small_model.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

ModelConfig small_hybrid() {
  ModelConfig model = small_model();
  model.family = "qwen3_5_text";
  model.is_hybrid = true;
  model.rotated_dim = 4;
  model.delta = {.layers = {0}, .key_heads = 2, .value_heads = 4, .key_dim = 16, .value_dim = 16, .taps = 4};
  return model;
}

PlanResult plan_of(const std::vector<std::string>& overrides, int ranks = 1, const char* text = kMinimalSft,
                   const ModelConfig& model = small_hybrid()) {
  const ConfigReading reading = read_text(text, overrides);
  EXPECT_TRUE(reading.errors.empty()) << reading.errors[0].key << ": " << reading.errors[0].message;
  return try_plan(reading.loaded.config, ranks, model);
}

void expect_error_of(const PlanResult& result, const std::string& key, const std::string& words) {
  SCOPED_TRACE(key);
  ASSERT_FALSE(result.errors.empty());
  EXPECT_EQ(result.errors[0].key, key);
  EXPECT_NE(result.errors[0].message.find(words), std::string::npos) << result.errors[0].message;
}

TEST(HybridRules, TrainingOnResponsesIsPlanned) {
  for (const char* dtype : {"run.dtype=fp32", "run.dtype=bf16", "run.dtype=fp64"}) {
    const PlanResult result = plan_of({dtype});
    EXPECT_TRUE(result.errors.empty()) << result.errors[0].key << ": " << result.errors[0].message;
  }
}

/// Value heads are whole, key heads may be fewer than ranks; over cp those of a tp rank.
TEST(HybridRules, HeadsOfDeltaNetsAreShared) {
  for (const char* layout :
       {"roles.trainer.tp=2", "roles.trainer.tp=4", "roles.trainer.cp=2", "roles.trainer.cp=4"}) {
    const PlanResult result = plan_of({layout}, 4);
    EXPECT_TRUE(result.errors.empty()) << layout << ": " << result.errors[0].message;
  }
  ModelConfig model = small_hybrid();
  model.delta.key_heads = 1, model.delta.value_heads = 3;
  expect_error_of(plan_of({"roles.trainer.tp=2"}, 2, kMinimalSft, model), "roles.trainer.tp",
                  "3 value heads of gated delta nets do not divide by 2");
  expect_error_of(plan_of({"roles.trainer.cp=2"}, 2, kMinimalSft, model), "roles.trainer.cp",
                  "3 value heads of gated delta nets of a tp rank do not divide by 2");
  model.delta.key_heads = 3, model.delta.value_heads = 6;
  expect_error_of(plan_of({"roles.trainer.tp=2"}, 2, kMinimalSft, model), "roles.trainer.tp",
                  "3 key heads of gated delta nets neither divide by 2, nor it by them");
  model.delta.key_heads = model.delta.value_heads = 6;
  expect_error_of(plan_of({"roles.trainer.tp=2", "roles.trainer.cp=2"}, 4, kMinimalSft, model),
                  "roles.trainer.cp", "3 value heads of gated delta nets of a tp rank do not divide by 2");
}

TEST(HybridRules, AGpuTakesHeadsOfUpTo256) {
  ModelConfig model = small_hybrid();
  for (const int64_t size : {16, 256, 512}) {
    model.delta.value_dim = size;
    const PlanResult result = plan_of({"run.device=cuda"}, 1, kMinimalConfig, model);
    if (size > 256)
      expect_error_of(result, "run.device", "have 512 elements; on a GPU they have at most 256");
    else
      EXPECT_TRUE(result.errors.empty()) << size << ": " << result.errors[0].message;
  }
}

TEST(HybridRules, PromptsWithImagesAreRefused) {
  ModelConfig model = small_hybrid();
  model.media_token_ids = {7, 9};
  expect_error(Exit::data, {"an image or a video", "token 9"}, "image", [&] {
    check_request({.prompt = {1, 9}}, 100, model);
  });
  check_request({.prompt = {1, 8}}, 100, model);
}

/// One layer of the two has a state, the other one pages.
TEST(HybridRules, StatesAreCountedBesidePages) {
  const PlanResult result = plan_of({}, 1, kMinimalConfig);
  ASSERT_TRUE(result.errors.empty()) << result.errors[0].key << ": " << result.errors[0].message;
  const RunPlan& plan = result.plan;
  const int64_t window = 3 * (2 * 32 + 64), tail = 64 * (32 + 64 + 4), state = 4 * 16 * 16;
  EXPECT_EQ(plan.cache.state_bytes, 4 * (window + tail + state));
  EXPECT_EQ(plan.cache.running_sequences, 32);
  EXPECT_EQ(plan.cache.page_bytes, 2 * 4 * 32 * plan.cache.page_tokens);
  for (const MemoryRow& row : plan.memory) {
    EXPECT_EQ(MemoryRow::bytes_of(row.all_parts(), "kv_states"), 32 * plan.cache.state_bytes) << row.phase;
    EXPECT_EQ(MemoryRow::bytes_of(row.all_parts(), "kv_cache"), plan.cache.pages * plan.cache.page_bytes);
  }
  // Padding rows of a GPU have a tail of their own.
  const RunPlan gpu = plan_of({"run.device=cuda", "run.dtype=fp32"}, 1, kMinimalConfig).plan;
  for (const MemoryRow& row : gpu.memory) {
    if (row.phase != "generate") continue;
    EXPECT_EQ(MemoryRow::bytes_of(row.all_parts(), "kv_states"),
              32 * plan.cache.state_bytes + 4 * (window + tail));
  }
}

/// What a rank keeps of a sequence is of its own heads: of four ranks two have the same key head.
TEST(HybridRules, RanksThatShareHeadsKeepTheirStates) {
  const auto bytes = [](int64_t keys, int64_t values) {
    return 4 * (3 * 16 * (2 * keys + values) + 64 * (16 * (keys + values) + values) + values * 16 * 16);
  };
  for (const auto& [tp, keys] : {std::pair{1, 2}, {2, 1}, {4, 1}}) {
    SCOPED_TRACE(tp);
    const PlanResult result = plan_of({fmt::format("roles.rollout.tp={}", tp)}, 4, kMinimalConfig);
    ASSERT_TRUE(result.errors.empty()) << result.errors[0].key << ": " << result.errors[0].message;
    EXPECT_EQ(result.plan.cache.state_bytes, bytes(keys, 4 / tp));
  }
  // A validation generates on trainer ranks, beside rollout ranks that are whole.
  const PlanResult two =
      plan_of({"roles.trainer.tp=4", "roles.rollout.tp=1", "validation.data=v.jsonl", "validation.every=1"},
              4, kMinimalConfig);
  ASSERT_TRUE(two.errors.empty()) << two.errors[0].key << ": " << two.errors[0].message;
  const int64_t sequences = two.plan.cache.running_sequences;
  for (const MemoryRow& row : two.plan.memory) {
    EXPECT_EQ(MemoryRow::bytes_of(row.all_parts(), "kv_states"), sequences * bytes(2, 4)) << row.phase;
    EXPECT_EQ(MemoryRow::bytes_of(row.all_parts(), "validation_states"), sequences * bytes(1, 1))
        << row.phase;
  }
}

TEST(HybridRules, EachStageHasTheStatesOfItsLayers) {
  const PlanResult result = plan_of({"roles.trainer.pp=2"}, 2, kMinimalConfig);
  ASSERT_TRUE(result.errors.empty()) << result.errors[0].key << ": " << result.errors[0].message;
  int64_t with_states = 0, with_pages = 0;
  for (const MemoryRow& row : result.plan.memory) {
    if (row.phase != "generate") continue;
    with_states += MemoryRow::bytes_of(row.all_parts(), "kv_states") > 0;
    with_pages += MemoryRow::bytes_of(row.all_parts(), "kv_cache") > 0;
  }
  EXPECT_EQ(with_states, 1);
  EXPECT_EQ(with_pages, 1);
}

TEST(HybridRules, SequencesThatDoNotFitAreSaidWithTheNumberThatDoes) {
  const std::vector<std::string> many{"rollout.prompts_per_step=64", "rollout.max_running_sequences=256",
                                      "train.updates_per_step=4", "rollout.kv_memory=1000000"};
  const RunPlan plan = plan_of(many, 1, kMinimalConfig).plan;
  ASSERT_EQ(plan.cache.running_sequences, 256);
  const int64_t limit = peak_bytes(plan) - 100 * plan.cache.state_bytes;
  const ConfigReading reading = read_text(kMinimalConfig, many);
  const PlanResult result = try_plan(reading.loaded.config, 1, small_hybrid(), {{limit}, {}});
  ASSERT_FALSE(result.errors.empty());
  const std::string &message = result.errors[0].message, key = "rollout.max_running_sequences = ";
  const size_t at = message.find(key);
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t fits = std::stoll(message.substr(at + key.size()));
  EXPECT_LE(fits, 156);
  EXPECT_GE(fits, 100);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
