// What is counted on Device::meta is what the same work takes in host memory, to the byte.

#include "src/run/plan/dry_run.h"

#include <gtest/gtest.h>

#include "tests/config/config_text.h"

namespace temper {
namespace {

struct Shape {
  int64_t layers, head_dim, vocab;
  bool qk_norm;
};

ModelConfig model_of(const Shape& shape) {
  return {.family = "qwen3",
          .vocab_size = shape.vocab,
          .hidden_size = 72,
          .intermediate_size = 136,
          .num_layers = shape.layers,
          .num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = shape.head_dim,
          .max_position_embeddings = 400,
          .tie_word_embeddings = !shape.qk_norm,
          .qkv_bias = true,
          .qk_norm = shape.qk_norm,
          .rope = {.type = "default", .theta = 10000.0},
          .eos_token_ids = {}};
}

/// Every layer but the second has experts.
ModelConfig with_experts(ModelConfig model) {
  model.family = "qwen2_moe";
  model.moe = {.num_experts = 6, .experts_per_token = 2, .expert_size = 40, .shared_size = 64};
  for (int64_t layer = 0; layer < model.num_layers; ++layer)
    if (layer != 1) model.moe.layers.insert(layer);
  return model;
}

/// Gated delta nets in all layers but each third.
ModelConfig with_delta_nets(ModelConfig model) {
  model.family = "qwen3_5_text";
  model.qkv_bias = false;
  model.qk_norm = model.is_hybrid = true;
  model.rotated_dim = 8;
  model.delta = {.key_heads = 2, .value_heads = 6, .key_dim = 16, .value_dim = 24, .taps = 4};
  for (int64_t layer = 0; layer < model.num_layers; ++layer)
    if (layer % 3 != 2) model.delta.layers.insert(layer);
  return model;
}

constexpr Shape kShapes[] = {{1, 16, 300, false}, {2, 24, 5000, true}, {5, 8, 2100, true}};

void expect_same(const PhaseMemory& counted, const PhaseMemory& taken) {
  EXPECT_EQ(counted.activations, taken.activations);
  EXPECT_EQ(counted.workspace, taken.workspace);
  EXPECT_GT(taken.workspace, 0);
}

/// What each stage of each role takes.
void compare_forward(const RunPlan& plan, const ModelConfig& model, const Config& config) {
  for (const RolePlan& role : plan.roles)
    for (RoleStage of{role}; of.stage < role.pp(); ++of.stage) {
      SCOPED_TRACE(fmt::format("stage {} of {}", of.stage, role.name()));
      if (role.traits->scores() || (plan.num_scorers() == 0 && role.traits->trains()))
        expect_same(logprob_memory(plan, model, config, of),
                    logprob_memory(plan, model, config, of, Device::cpu));
      if (role.traits->generates())
        expect_same(generate_memory(plan, model, config, of),
                    generate_memory(plan, model, config, of, Device::cpu));
    }
}

void compare(ModelConfig model, const std::string& text, const std::vector<std::string>& keys, int ranks) {
  const Config config = load_text(text, keys).config;
  const PlanResult result = try_plan(config, ranks, model);
  ASSERT_TRUE(result.errors.empty()) << result.errors[0].message;
  const RunPlan& plan = result.plan;
  model.frozen = plan.frozen;
  SCOPED_TRACE(fmt::format("{} layers, {} threads, {}", model.num_layers, *config.run.threads,
                           dtype_name(plan.dtype)));
  for (RoleStage of{plan.trainer()}; of.stage < of.role.pp(); ++of.stage) {
    const auto counted = microbatch_memory(plan, model, config, of),
               trained = microbatch_memory(plan, model, config, of, Device::cpu);
    for (size_t kind = 0; kind < trained.size(); ++kind) {
      EXPECT_GT(trained[kind].memory.activations, 0);
      expect_same(counted[kind].memory, trained[kind].memory);
    }
  }
  compare_forward(plan, model, config);
}

void compare(const std::string& text, const std::vector<std::string>& keys, int ranks = 1,
             int64_t fewest_layers = 1) {
  for (const Shape& shape : kShapes)
    if (shape.layers >= fewest_layers) compare(model_of(shape), text, keys, ranks);
}

TEST(DryRun, CountsWhatSampledStepsTake) {
  for (const char* dtype : {"fp32", "bf16", "fp64"})
    for (const char* threads : {"1", "3"})
      compare(kMinimalConfig, {fmt::format("run.dtype={}", dtype), fmt::format("run.threads={}", threads),
                               "rollout.max_new_tokens=50", "train.max_tokens_per_microbatch=900"});
}

TEST(DryRun, CountsWhatRanksThatShareTheModelTake) {
  for (const char* dtype : {"fp32", "bf16"})
    compare(kMinimalConfig,
            {fmt::format("run.dtype={}", dtype), "run.threads=2", "roles.trainer.tp=2",
             "rollout.max_new_tokens=50", "train.max_tokens_per_microbatch=900"},
            4);
}

TEST(DryRun, CountsWhatEachStageOfAPipelineTakes) {
  for (const char* dtype : {"fp32", "bf16"})
    for (const int stages : {2, 4})
      compare(
          kMinimalConfig,
          {fmt::format("run.dtype={}", dtype), "run.threads=2", fmt::format("roles.trainer.pp={}", stages),
           "rollout.max_new_tokens=50", "train.max_tokens_per_microbatch=450", "algorithm.kl_coef=0.1"},
          stages, stages);
}

TEST(DryRun, CountsWhatRanksThatShareTokensTake) {
  for (const char* recompute : {"none", "selective", "full"})
    compare(kMinimalConfig,
            {"run.dtype=bf16", "run.threads=2", "roles.trainer.cp=2", "algorithm.kl_coef=0.1",
             fmt::format("train.recompute.granularity={}", recompute), "rollout.max_new_tokens=50",
             "train.max_tokens_per_microbatch=250"},
            4);
}

TEST(DryRun, CountsWhatShardsOfGradientsTake) {
  for (const char* stages : {"1", "2"})
    compare(kMinimalConfig,
            {"run.dtype=bf16", "run.threads=2", fmt::format("roles.trainer.zero={}", 1 + std::atoi(stages)),
             fmt::format("roles.trainer.pp={}", stages), "rollout.max_new_tokens=50",
             "train.max_tokens_per_microbatch=450"},
            4, 2);
}

/// Some layers have a part that is not trained, one is not trained at all.
TEST(DryRun, CountsLayersOfSeveralKinds) {
  for (const char* stages : {"1", "2"})
    compare(kMinimalConfig,
            {"run.dtype=bf16", "run.threads=2", fmt::format("roles.trainer.pp={}", stages),
             R"(train.freeze=["model.layers.1.*", "model.layers.3.*norm*", "model.norm.weight"])",
             "rollout.max_new_tokens=50", "train.max_tokens_per_microbatch=450"},
            2, 5);
}

/// Several chunks of the delta rule, whatever is kept of them; a rank has heads of its own.
TEST(DryRun, CountsGatedDeltaNets) {
  const ModelConfig model = with_delta_nets(model_of({5, 16, 2100, false}));
  const std::vector<std::string> all{"run.dtype=bf16", "run.threads=2", "algorithm.kl_coef=0.1",
                                     "rollout.max_new_tokens=150", "train.max_tokens_per_microbatch=450"};
  for (const char* keys : {"roles.trainer.tp=2 train.recompute.granularity=none",
                           "roles.trainer.cp=2 train.recompute.granularity=selective",
                           "roles.trainer.pp=2 train.recompute.granularity=full"}) {
    SCOPED_TRACE(keys);
    std::vector<std::string> more = all;
    const std::string text = keys;
    more.push_back(text.substr(0, text.find(' ')));
    more.push_back(text.substr(text.find(' ') + 1));
    compare(model, kMinimalConfig, more, 2);
  }
}

/// What is kept is the same for any routing; products are counted as if one expert took all rows.
void compare_experts(const ModelConfig& model) {
  for (const char* recompute : {"none", "selective", "full"}) {
    const Config config =
        load_text(kMinimalConfig,
                  {"run.dtype=bf16", "run.threads=2", "roles.trainer.tp=2", "roles.trainer.ep=1",
                   "algorithm.kl_coef=0.1", fmt::format("train.recompute.granularity={}", recompute),
                   "rollout.max_new_tokens=50", "train.max_tokens_per_microbatch=450"})
            .config;
    const RunPlan plan = try_plan(config, 2, model).plan;
    const RoleStage of{plan.trainer()};
    const auto counted = microbatch_memory(plan, model, config, of),
               trained = microbatch_memory(plan, model, config, of, Device::cpu);
    ASSERT_GT(trained.size(), 0u);
    for (size_t kind = 0; kind < trained.size(); ++kind) {
      EXPECT_EQ(counted[kind].memory.activations, trained[kind].memory.activations) << recompute;
      EXPECT_GE(counted[kind].memory.workspace, trained[kind].memory.workspace) << recompute;
      EXPECT_LE(static_cast<double>(counted[kind].memory.workspace),
                1.1 * static_cast<double>(trained[kind].memory.workspace))
          << recompute;
    }
  }
}

TEST(DryRun, CountsExperts) { compare_experts(with_experts(model_of({5, 16, 2100, true}))); }

TEST(DryRun, CountsExpertsBesideGatedDeltaNets) {
  ModelConfig model = with_experts(with_delta_nets(model_of({5, 16, 2100, false})));
  model.family = "qwen3_5_moe_text";
  compare_experts(model);
}

/// The recorded experts of all layers lie in memory while log-probs are made, and in a step of generation.
TEST(DryRun, CountsRoutesOfAllLayers) {
  const ModelConfig model = with_experts(model_of({5, 16, 2100, true}));
  const auto bytes = [&](const char* records) {
    const Config config =
        load_text(kMinimalConfig,
                  {"run.dtype=bf16", "run.threads=1", "rollout.max_new_tokens=50",
                   "train.max_tokens_per_microbatch=4500", fmt::format("moe.record_routes={}", records)})
            .config;
    const RunPlan plan = try_plan(config, 1, model).plan;
    const PhaseMemory scores = logprob_memory(plan, model, config, {plan.trainer()}),
                      generates = generate_memory(plan, model, config, {*plan.generator()});
    return std::pair{scores.workspace, generates.workspace};
  };
  const auto [scores, generates] = bytes("true");
  const auto [scores_without, generates_without] = bytes("false");
  const int64_t row = model.num_layers * model.moe.experts_per_token * dtype_size(DType::i32);
  EXPECT_NEAR(static_cast<double>(scores - scores_without), static_cast<double>(4500 * row), 4096);
  EXPECT_GE(generates - generates_without, 512 * row) << "of a chunk of prompts";
}

TEST(DryRun, CountsFiltersPenaltiesAndReferences) {
  compare(kMinimalConfig,
          {"run.threads=2", "rollout.max_new_tokens=50", "train.max_tokens_per_microbatch=450",
           "rollout.top_p=0.9", "rollout.logit_bias={3=1.0}", "algorithm.kl_coef=0.1",
           "algorithm.entropy_coef=0.1"},
          2);
}

TEST(DryRun, CountsWhatSupervisedStepsTake) {
  compare(kMinimalSft, {"run.threads=2", "train.max_tokens_per_microbatch=1500"}, 3);
}

TEST(DryRun, HoldsNoMemoryOfALargeModel) {
  const ModelConfig large{.family = "qwen3",
                          .vocab_size = 151936,
                          .hidden_size = 4096,
                          .intermediate_size = 12288,
                          .num_layers = 36,
                          .num_heads = 32,
                          .num_kv_heads = 8,
                          .head_dim = 128,
                          .max_position_embeddings = 40960,
                          .qk_norm = true,
                          .rope = {},
                          .eos_token_ids = {}};
  const PlanResult result = try_plan(load_text(kMinimalConfig, {"run.dtype=bf16"}).config, 1, large);
  ASSERT_TRUE(result.errors.empty()) << result.errors[0].message;
  EXPECT_GT(result.plan.memory.front().host_bytes, int64_t{100} << 30);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
