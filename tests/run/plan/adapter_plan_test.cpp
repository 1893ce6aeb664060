// The section [lora] in a plan: what is refused, what a key means beside a folder of adapters, and what
// adapters take of memory and send.

#include <gtest/gtest.h>

#include "src/models/parameter_specs.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/plan.h"
#include "tests/config/config_text.h"
#include "tests/run/small_model.h"

namespace temper {
namespace {

PlanResult plan_of(const std::vector<std::string>& overrides, int ranks = 1,
                   RunModels models = small_model()) {
  const ConfigReading reading = read_text(kMinimalConfig, overrides);
  EXPECT_TRUE(reading.errors.empty()) << reading.errors[0].key << ": " << reading.errors[0].message;
  return try_plan(reading.loaded.config, ranks, models);
}

/// The one error of a plan.
PlanError error_of(const std::vector<std::string>& overrides, const RunModels& models = small_model()) {
  const PlanResult result = plan_of(overrides, 1, models);
  EXPECT_EQ(result.errors.size(), 1u);
  return result.errors.empty() ? PlanError{} : result.errors.front();
}

RunModels with_folder() {
  RunModels models = small_model();
  models.adapters = {.rank = 4, .alpha = 8, .targets = {"q_proj", "v_proj"}};
  return models;
}

TEST(AdapterPlan, DefaultsAreAllLinearLayersAndTwiceTheRank) {
  const PlanResult result = plan_of({"lora.rank=8"});
  ASSERT_TRUE(result.errors.empty()) << result.errors.front().message;
  EXPECT_EQ(result.plan.adapters,
            (AdapterConfig{.rank = 8, .alpha = 16, .targets = adapter_modules(small_model())}));
  EXPECT_EQ(result.plan.adapters.scale(), 2.0);
  EXPECT_EQ(plan_of({"lora.rank=4", "lora.alpha=3", "lora.rslora=true"}).plan.adapters.scale(), 1.5);
  EXPECT_FALSE(plan_of({}).plan.adapters.on());
}

TEST(AdapterPlan, AFolderSaysWhatKeysLeaveOpen) {
  const std::vector<std::string> path{"lora.path=adapters"};
  EXPECT_EQ(plan_of(path, 1, with_folder()).plan.adapters, with_folder().adapters);
  const PlanError rank = error_of({"lora.path=adapters", "lora.rank=8"}, with_folder());
  EXPECT_EQ(rank.key, "lora.rank");
  EXPECT_EQ(rank.legal, std::vector<Json>{4});
  const PlanError targets = error_of({"lora.path=adapters", "lora.targets=[\"q_proj\"]"}, with_folder());
  EXPECT_EQ(targets.key, "lora.targets");
  EXPECT_EQ(targets.legal, (std::vector<Json>{{"q_proj", "v_proj"}}));
}

TEST(AdapterPlan, WrongKeysAreRefused) {
  const PlanError unknown = error_of({"lora.rank=4", "lora.targets=[\"q_porj\"]"});
  EXPECT_EQ(unknown.key, "lora.targets");
  EXPECT_NE(unknown.message.find("did you mean"), std::string::npos) << unknown.message;
  EXPECT_EQ(unknown.legal.front().size(), 7u);
  RunModels moe = small_model();
  moe.policy.moe = {
      .layers = {0}, .num_experts = 4, .experts_per_token = 2, .expert_size = 16, .normalizes = true};
  const PlanError experts = error_of({"lora.rank=4", "lora.targets=[\"down_proj\"]"}, moe);
  EXPECT_NE(experts.message.find("experts get none"), std::string::npos) << experts.message;
  EXPECT_EQ(plan_of({"lora.rank=4"}, 1, moe).plan.adapters.targets.size(), 4u);
  EXPECT_EQ(error_of({"lora.rank=4", "model.init=random"}).key, "model.init");
  EXPECT_EQ(error_of({"lora.rank=4", "train.freeze=[\"model.norm.weight\"]"}).key, "train.freeze");
  const PlanResult idle = plan_of({"lora.alpha=4"});
  EXPECT_TRUE(idle.errors.empty());
  EXPECT_FALSE(idle.warnings.empty());
}

int64_t part(const RunPlan& plan, const char* phase, const char* name) {
  for (const MemoryRow& row : plan.memory)
    if (row.phase == phase) return MemoryRow::bytes_of(row.host, name);
  return -1;
}

/// No second copy for a reference with the trainer's layout; one where it has another.
TEST(AdapterPlan, TheBaseIsThereOnce) {
  const std::vector<std::string> kl{"lora.rank=4", "algorithm.kl_coef=0.1"};
  const PlanResult one = plan_of(kl);
  ASSERT_TRUE(one.complete);
  EXPECT_EQ(part(one.plan, "reference", "reference_weights"), 0);
  EXPECT_GT(part(one.plan, "reference", "weights"), 0);
  EXPECT_GT(part(one.plan, "train", "gradients"), 0);
  EXPECT_LT(part(one.plan, "train", "gradients"), part(one.plan, "train", "weights") / 4);
  for (const char* layout : {"roles.trainer.tp=2", "roles.trainer.pp=2", "roles.trainer.zero=3"}) {
    const PlanResult two = plan_of({"lora.rank=4", "algorithm.kl_coef=0.1", layout}, 2);
    ASSERT_TRUE(two.complete) << layout;
    EXPECT_EQ(part(two.plan, "reference", "reference_weights"), 0) << layout;
  }
  const PlanResult apart = plan_of(
      {"lora.rank=4", "algorithm.kl_coef=0.1", "roles.trainer.ranks=\"0\"", "roles.reference.ranks=\"1\""},
      2);
  ASSERT_TRUE(apart.complete) << apart.errors.front().message;
  bool held = false;
  for (const MemoryRow& row : apart.plan.memory)
    held |= row.ranks.front() == 1 && MemoryRow::bytes_of(row.host, "reference_weights") > 0;
  EXPECT_TRUE(held);
}

/// Ranks that generate with weights of their own get adapters alone.
TEST(AdapterPlan, SendsAdaptersAlone) {
  const std::vector<std::string> apart{"roles.trainer.ranks=\"0\"", "roles.rollout.ranks=\"1\""};
  std::vector<std::string> with = apart;
  with.push_back("lora.rank=1");
  const PlanResult all = plan_of(apart, 2), adapters = plan_of(with, 2);
  ASSERT_TRUE(all.complete && adapters.complete);
  int64_t elements = 0;
  ModelConfig model = small_model();
  model.adapters = adapters.plan.adapters;
  for (const ParamSpec& spec : parameter_specs(model))
    if (spec.whose == Whose::adapter) elements += spec.size();
  EXPECT_EQ(adapters.plan.weights.bytes, elements * dtype_size(adapters.plan.dtype));
  EXPECT_LT(adapters.plan.weights.bytes, all.plan.weights.bytes / 10);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
