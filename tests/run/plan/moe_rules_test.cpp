// The rules of [moe]: what it does not fit, and what is said of the losses of routers.

#include <gtest/gtest.h>

#include "src/config/values.h"
#include "src/run/plan/plan.h"
#include "tests/config/config_text.h"
#include "tests/run/small_model.h"

namespace temper {
namespace {

ModelConfig small_moe(int64_t shared = 0) {
  ModelConfig model = small_model();
  model.family = shared > 0 ? "qwen2_moe" : "qwen3_moe";
  model.moe = {.layers = {1},
               .num_experts = 6,
               .experts_per_token = 2,
               .expert_size = 16,
               .shared_size = shared,
               .file_aux_coef = 0.001};
  return model;
}

PlanResult plan_of(const std::vector<std::string>& overrides, const ModelConfig& model, int ranks = 1) {
  const ConfigReading reading = read_text(kMinimalConfig, overrides);
  EXPECT_TRUE(reading.errors.empty()) << reading.errors[0].key << ": " << reading.errors[0].message;
  return try_plan(reading.loaded.config, ranks, model);
}

/// Each proposed value removes the error, which is the only one.
void expect_refused(std::vector<std::string> overrides, const ModelConfig& model, const std::string& key,
                    const std::string& words, int ranks = 1) {
  SCOPED_TRACE(key);
  const PlanResult result = plan_of(overrides, model, ranks);
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].key, key);
  EXPECT_NE(result.errors[0].message.find(words), std::string::npos) << result.errors[0].message;
  EXPECT_FALSE(result.errors[0].legal.empty());
  for (const Json& legal : result.errors[0].legal) {
    std::vector<std::string> better = overrides;
    better.push_back(key + "=" + toml_text(legal));
    EXPECT_TRUE(plan_of(better, model, ranks).errors.empty()) << legal.dump();
  }
}

TEST(MoeRules, KeysAreRefusedForADenseModel) {
  for (const char* key : {"moe.router.freeze=true", "moe.aux_loss=[\"z\"]", "moe.aux_coef=0.1",
                          "moe.z_coef=1", "moe.record_routes=true", "moe.replay=rollout"}) {
    const std::string text = key;
    expect_refused({text}, small_model(), text.substr(0, text.find('=')), "the model has no experts");
  }
  EXPECT_EQ(plan_of({}, small_model()).plan.aux_losses, "");
}

TEST(MoeRules, LossesOfFrozenRoutersAreRefused) {
  const std::vector<std::string> losses{"moe.aux_loss=[\"sequence\",\"z\"]", "moe.aux_coef=0.1",
                                        "moe.z_coef=0.2"};
  for (const char* freeze : {"moe.router.freeze=true", "train.freeze=[\"*.mlp.gate.weight\"]"}) {
    std::vector<std::string> all = losses;
    all.push_back(freeze);
    const std::string text = freeze;
    expect_refused(all, small_moe(), "moe.aux_loss",
                   "all 1 of them are frozen by " + text.substr(0, text.find('=')));
  }
  ModelConfig two = small_moe();
  two.moe.layers = {0, 1};
  std::vector<std::string> one_left = losses;
  one_left.push_back("train.freeze=[\"model.layers.0.*\"]");
  EXPECT_TRUE(plan_of(one_left, two).errors.empty());
}

/// The gate of a shared expert is stored with the router.
TEST(MoeRules, FrozenRoutersAreNotTrained) {
  for (const int64_t shared : {0, 8}) {
    const PlanResult result =
        plan_of({"moe.router.freeze=true", "train.freeze=[\"model.norm.weight\"]"}, small_moe(shared));
    ASSERT_TRUE(result.errors.empty()) << result.errors[0].message;
    EXPECT_EQ(result.plan.frozen, (std::set<std::string>{"layers.1.moe.router", "norm"}));
  }
}

TEST(MoeRules, RoutesNeedSamplesAndRanksWithAllLayers) {
  EXPECT_EQ(plan_of({}, small_moe()).plan.routes, RouteShape{});
  EXPECT_EQ(plan_of({"moe.record_routes=true"}, small_moe()).plan.routes, (RouteShape{1, 6, 2}));
  const PlanResult replays = plan_of({"moe.replay=rollout"}, small_moe());
  EXPECT_EQ(replays.plan.routes, (RouteShape{1, 6, 2}));
  EXPECT_TRUE(replays.plan.follows_routes);
  for (const char* key : {"moe.record_routes=true", "moe.replay=rollout"}) {
    const std::string text = key, name = text.substr(0, text.find('='));
    expect_refused({text, "algorithm.name=sft", "train.samples_per_update=8"}, small_moe(), name,
                   "sft samples no responses");
    expect_refused({text, "roles.trainer.pp=2"}, small_moe(), name, "roles.rollout.pp = 2", 2);
    EXPECT_TRUE(plan_of({text, "roles.trainer.pp=2", "roles.rollout.pp=1"}, small_moe(), 2).errors.empty());
  }
}

/// A row that a turn finds in the cache went through its routers when another one was played.
TEST(MoeRules, ProgramsThatPlaySessionsHaveNoRoutes) {
  for (const char* key : {"moe.record_routes=true", "moe.replay=rollout"}) {
    const std::string text = key;
    expect_refused({"rollout.harness={argv=[\"a\"]}", text}, small_moe(), text.substr(0, text.find('=')),
                   "have no recorded routes");
  }
}

std::vector<std::string> with(std::vector<std::string> keys, const std::string& more) {
  keys.push_back(more);
  return keys;
}

TEST(MoeRules, ExpertsThatDoNotSpreadAreRefused) {
  const ModelConfig six = small_moe();
  const std::string trainer = "roles.trainer.ep", rollout = "roles.rollout.ep";
  expect_refused({trainer + "=4"}, six, trainer, "6 experts do not divide by 4", 4);
  expect_refused({"roles.trainer.tp=2", trainer + "=3"}, six, trainer,
                 "3 neither divides roles.trainer.tp = 2 nor is a multiple of it", 6);
  expect_refused({trainer + "=3"}, six, trainer, "4 ranks of a stage do not divide into groups of 3", 4);
  expect_refused({"roles.trainer.pp=2", trainer + "=2"}, six, trainer,
                 "1 ranks of a stage do not divide into groups of 2", 2);
  expect_refused({rollout + "=2"}, six, rollout, "2 does not divide roles.rollout.tp = 1", 2);
  expect_refused({"roles.trainer.tp=2", "roles.rollout.tp=2", rollout + "=6"}, six, rollout,
                 "6 does not divide roles.rollout.tp = 2", 6);
  expect_refused({"algorithm.kl_coef=0.1", "roles.reference.ep=5"}, six, "roles.reference.ep",
                 "6 experts do not divide by 5", 4);
  for (const char* role : {"trainer", "rollout", "reference"})
    expect_refused({fmt::format("roles.{}.ep=2", role), "algorithm.kl_coef=0.1", "roles.trainer.tp=2",
                    "roles.rollout.tp=2"},
                   small_model(), fmt::format("roles.{}.ep", role), "the model has no experts", 2);
}

/// Numbers that each role takes, those that are not tried by a user included.
TEST(MoeRules, LegalNumbersOfRanksAreAllThereAre) {
  const auto legal = [](const std::vector<std::string>& keys, const ModelConfig& model, int ranks) {
    const PlanResult result = plan_of(keys, model, ranks);
    return result.errors.size() == 1 ? Json(result.errors[0].legal) : Json("no error, or several");
  };
  EXPECT_EQ(legal({"roles.trainer.ep=5"}, small_moe(), 6), Json({1, 2, 3, 6}));
  EXPECT_EQ(legal({"roles.trainer.tp=2", "roles.trainer.ep=5"}, small_moe(), 6), Json({1, 2, 6}));
  EXPECT_EQ(legal({"roles.trainer.cp=2", "roles.trainer.ep=4"}, small_moe(), 4), Json({1, 2}));
  EXPECT_EQ(legal({"roles.trainer.tp=2", "roles.rollout.ep=6"}, small_moe(), 6), Json({1, 2}));
  EXPECT_EQ(legal({"roles.trainer.ep=2"}, small_model(), 2), Json({1}));
}

TEST(MoeRules, WithoutANumberExpertsGoOverTheRanksOfHeads) {
  const auto numbers = [](const std::vector<std::string>& keys, const ModelConfig& model, int ranks) {
    const PlanResult result = plan_of(with(keys, "algorithm.kl_coef=0.1"), model, ranks);
    EXPECT_TRUE(result.errors.empty()) << result.errors[0].message;
    std::map<std::string, int> all;
    for (const RolePlan& role : result.plan.roles) all[std::string(role.name())] = role.ep();
    return all;
  };
  using Numbers = std::map<std::string, int>;
  const ModelConfig six = small_moe();
  EXPECT_EQ(numbers({}, six, 2), (Numbers{{"trainer", 1}, {"rollout", 1}, {"reference", 1}}));
  EXPECT_EQ(numbers({"roles.trainer.tp=2", "roles.rollout.tp=1"}, six, 2),
            (Numbers{{"trainer", 2}, {"rollout", 1}, {"reference", 2}}));
  EXPECT_EQ(numbers({"roles.trainer.tp=4", "roles.rollout.tp=2"}, six, 4),
            (Numbers{{"trainer", 2}, {"rollout", 2}, {"reference", 2}}))
      << "four ranks do not divide six experts";
  EXPECT_EQ(numbers({"roles.trainer.ep=2"}, six, 2),
            (Numbers{{"trainer", 2}, {"rollout", 1}, {"reference", 2}}))
      << "the reference spreads them as the trainer";
  EXPECT_EQ(numbers({"roles.trainer.tp=2"}, small_model(), 2),
            (Numbers{{"trainer", 1}, {"rollout", 1}, {"reference", 1}}));
}

TEST(MoeRules, AnExpertIsNotCut) {
  for (const char* role : {"trainer", "rollout", "reference"}) {
    const ConfigReading reading = read_text(kMinimalConfig, {fmt::format("roles.{}.etp=2", role)});
    ASSERT_EQ(reading.errors.size(), 1u);
    EXPECT_EQ(reading.errors[0].key, fmt::format("roles.{}.etp", role));
    EXPECT_NE(reading.errors[0].message.find("it lies whole on a rank"), std::string::npos);
    EXPECT_NE(reading.errors[0].message.find("ep spreads experts"), std::string::npos);
    EXPECT_EQ(Json(reading.errors[0].legal), Json({1}));
  }
}

TEST(MoeRules, SayWhichLossesThereAre) {
  const std::string file = " (router_aux_loss_coef = 0.001 of its config.json is not used)";
  EXPECT_EQ(plan_of({}, small_moe()).plan.aux_losses, "none" + file);
  EXPECT_EQ(plan_of({"moe.aux_loss=[\"z\"]", "moe.z_coef=0.01"}, small_moe()).plan.aux_losses,
            "z (0.01)" + file);
  const auto warned = [&](const std::vector<std::string>& overrides, const std::string& words) {
    for (const std::string& warning : plan_of(overrides, small_moe()).warnings)
      if (warning.find(words) != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(warned({"moe.aux_loss=[\"z\"]"}, "moe.z_coef = 0: it adds nothing"));
  EXPECT_TRUE(warned({"moe.aux_coef=0.5"}, "moe.aux_coef = 0.5 has no effect"));
  EXPECT_FALSE(warned({"moe.aux_loss=[\"global\"]", "moe.aux_coef=0.5"}, "moe."));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
