// What hybrid models cannot do yet is refused before a run begins.

#include <gtest/gtest.h>

#include "src/rollout/request.h"
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

PlanResult plan_of(const std::vector<std::string>& overrides, int ranks = 1, const char* text = kMinimalSft) {
  const ConfigReading reading = read_text(text, overrides);
  EXPECT_TRUE(reading.errors.empty()) << reading.errors[0].key << ": " << reading.errors[0].message;
  return try_plan(reading.loaded.config, ranks, small_hybrid());
}

void expect_error_of(const PlanResult& result, const std::string& key, const std::string& words) {
  SCOPED_TRACE(key);
  ASSERT_FALSE(result.errors.empty());
  EXPECT_EQ(result.errors[0].key, key);
  EXPECT_NE(result.errors[0].message.find(words), std::string::npos) << result.errors[0].message;
}

TEST(HybridRules, TrainingOnResponsesIsPlanned) {
  const PlanResult result = plan_of({});
  ASSERT_TRUE(result.errors.empty()) << result.errors[0].key << ": " << result.errors[0].message;
}

TEST(HybridRules, WhatDoesNotWorkYetIsRefused) {
  expect_error_of(plan_of({"run.dtype=bf16"}), "run.dtype", "trains in fp32 and fp64 only");
  expect_error_of(plan_of({"run.device=cuda"}), "run.device", "run on the CPU only");
  expect_error_of(plan_of({"roles.trainer.tp=2"}, 2), "roles.trainer.tp", "not shared by ranks yet");
  expect_error_of(plan_of({"roles.trainer.cp=2"}, 2), "roles.trainer.cp", "not shared by ranks yet");
  expect_error_of(plan_of({}, 1, kMinimalConfig), "model.path", "on given responses only");
}

TEST(HybridRules, PromptsWithImagesAreRefused) {
  ModelConfig model = small_hybrid();
  model.media_token_ids = {7, 9};
  expect_error(Exit::data, {"an image or a video", "token 9"}, "image", [&] {
    check_request({.prompt = {1, 9}}, 100, model);
  });
  check_request({.prompt = {1, 8}}, 100, model);
}

}  // namespace
}  // namespace temper
