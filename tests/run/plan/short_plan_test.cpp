// Plans of short trials: what they make idle is a warning, and a supervised one validates by its loss.

#include <gtest/gtest.h>

#include <algorithm>

#include "src/run/plan/plan.h"
#include "tests/config/config_text.h"
#include "tests/run/small_model.h"

namespace temper {
namespace {

PlanResult plan_of(const std::vector<std::string>& overrides, int ranks = 1,
                   const std::string& text = kMinimalConfig) {
  return try_plan(load_text(text, overrides).config, ranks, small_model());
}

bool warns(const PlanResult& result, const std::string& words) {
  return std::any_of(result.warnings.begin(), result.warnings.end(),
                     [&](const std::string& w) { return w.find(words) != std::string::npos; });
}

/// A trial of a few steps needs no other config than the long run.
TEST(ShortPlan, WhatAShorterRunMakesIdleIsAWarning) {
  const auto plan_with = [](const std::string& key) {
    PlanResult result = plan_of({key, "validation.data=v"});
    EXPECT_TRUE(result.errors.empty()) << key;
    return result;
  };
  const auto expect_idle = [&](const std::string& key, const std::string& words) {
    const PlanResult result = plan_with(key);
    ASSERT_EQ(result.plan.idle_keys.size(), 1u) << key;
    EXPECT_TRUE(warns(result, words)) << result.plan.idle_keys[0];
    EXPECT_TRUE(result.plan.idle_keys[0].starts_with(key.substr(0, key.find('=')))) << key;
    EXPECT_TRUE(warns(result, result.plan.idle_keys[0])) << key;
  };
  expect_idle("optimizer.warmup_steps=10", "whole run has 10 updates and ends in warm-up, at 1 of");
  expect_idle("optimizer.warmup_steps=40", "ends in warm-up, at 0.25 of optimizer.lr");
  expect_idle("profile.steps=\"9-12\"", "the run ends with step 10, 2 of these steps");
  expect_idle("profile.steps=\"30\"", "the run ends with step 10, 0 of these steps");
  expect_idle("validation.every=50", "beyond the last step, 10");
  expect_idle("checkpoint.every=11", "beyond the last step, 10");
  expect_idle("checkpoint.export_hf_every=11", "beyond the last step, 10");
  EXPECT_EQ(plan_with("profile.steps=\"9-12\"").plan.profiled_steps, (std::vector<int>{9, 10}));
  for (const char* key : {"optimizer.warmup_steps=9", "profile.steps=\"10\"", "validation.every=10"})
    EXPECT_TRUE(plan_with(key).plan.idle_keys.empty()) << key;
}

TEST(ShortPlan, HeldOutLossNeedsDataAlone) {
  const auto sft = [](const std::vector<std::string>& keys) { return plan_of(keys, 1, kMinimalSft).plan; };
  const RunPlan plan = sft({"validation.data=v", "validation.every=1"});
  EXPECT_TRUE(plan.validation.loss && !plan.validation.generates);
  EXPECT_EQ(plan.cache.pages, 0);
  const auto of_phase = [](const RunPlan& of, const std::string& phase) {
    const auto row = std::find_if(of.memory.begin(), of.memory.end(),
                                  [&](const MemoryRow& r) { return r.phase == phase; });
    return row == of.memory.end() ? 0 : row->host_bytes;
  };
  EXPECT_GT(of_phase(plan, "validation"), of_phase(plan, "save") - (int64_t{64} << 20));
  EXPECT_EQ(of_phase(sft({"validation.data=v"}), "validation"), 0) << "never during training";
  const RunPlan both =
      sft({"validation.data=v", "validation.every=1", "reward.functions=exact", "rollout.max_new_tokens=8"});
  EXPECT_TRUE(both.validation.loss && both.validation.generates);
  EXPECT_GT(both.cache.pages, 0);
  EXPECT_FALSE(plan_of({"validation.data=v"}).plan.validation.loss) << "nothing is supervised";
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
