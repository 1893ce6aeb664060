// What a plan counts for a GPU without one is what the same work takes there.

#include "src/run/plan/dry_run.h"

#include "tests/config/config_text.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

ModelConfig model_of(int64_t hidden, int64_t heads, int64_t kv_heads, int64_t head_dim, bool tied) {
  return {.family = "qwen3",
          .vocab_size = 50257,
          .hidden_size = hidden,
          .intermediate_size = 3 * hidden,
          .num_layers = 3,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = head_dim,
          .max_position_embeddings = 4096,
          .tie_word_embeddings = tied,
          .qkv_bias = !tied,
          .qk_norm = tied,
          .rope = {.type = "default", .theta = 10000.0},
          .eos_token_ids = {}};
}

/// The first layer is dense.
ModelConfig moe_model() {
  ModelConfig c = model_of(1024, 16, 8, 128, true);
  c.family = "qwen2_moe";
  c.moe = {
      .layers = {1, 2}, .num_experts = 64, .experts_per_token = 4, .expert_size = 512, .shared_size = 1024};
  return c;
}

ModelConfig hybrid_model() {
  ModelConfig c = model_of(1024, 8, 2, 256, false);
  c.family = "qwen3_5_text";
  c.qkv_bias = false;
  c.qk_norm = c.is_hybrid = true;
  c.rotated_dim = 64;
  c.delta = {
      .layers = {0, 1}, .key_heads = 8, .value_heads = 16, .key_dim = 128, .value_dim = 128, .taps = 4};
  return c;
}

/// Sizes below a MiB are not planned for.
void expect_near(const char* what, const PhaseMemory& planned, const PhaseMemory& taken) {
  constexpr double kMiB = 1048576.0;
  std::printf("%s: activations %.1f of %.1f MiB, workspace %.1f of %.1f MiB\n", what,
              static_cast<double>(planned.activations) / kMiB, static_cast<double>(taken.activations) / kMiB,
              static_cast<double>(planned.workspace) / kMiB, static_cast<double>(taken.workspace) / kMiB);
  EXPECT_EQ(planned.activations, taken.activations) << what;
  EXPECT_NEAR(static_cast<double>(planned.workspace), static_cast<double>(taken.workspace), 2 * kMiB) << what;
}

TEST(GpuDryRun, CountsWhatAStepTakes) {
  for (const ModelConfig& model :
       {model_of(1024, 16, 8, 128, true), model_of(896, 14, 2, 64, false), model_of(640, 8, 4, 80, true),
        model_of(1024, 8, 2, 256, true), moe_model(), hybrid_model()})
    for (const char* recompute : {"none", "selective", "full"}) {
      const Config config =
          load_text(kMinimalConfig,
                    {"run.device=cuda", "rollout.max_new_tokens=1000", "rollout.max_prompt_tokens=500",
                     "train.max_tokens_per_microbatch=8000", "algorithm.kl_coef=0.1",
                     fmt::format("train.recompute.granularity={}", recompute)})
              .config;
      const PlanResult result = try_plan(config, 1, model);
      ASSERT_TRUE(result.errors.empty()) << result.errors[0].message;
      SCOPED_TRACE(fmt::format("heads of {}, recompute {}", model.head_dim, recompute));
      const RunPlan& plan = result.plan;
      const RoleStage trainer{plan.trainer()};
      const auto counted = microbatch_memory(plan, model, config, trainer),
                 trained = microbatch_memory(plan, model, config, trainer, Device::cuda);
      for (size_t kind = 0; kind < trained.size(); ++kind)
        expect_near("train", counted[kind].memory, trained[kind].memory);
      const RoleStage reference{*plan.role("reference")}, rollout{*plan.generator()};
      expect_near("reference", logprob_memory(plan, model, config, reference),
                  logprob_memory(plan, model, config, reference, Device::cuda));
      expect_near("generate", generate_memory(plan, model, config, rollout),
                  generate_memory(plan, model, config, rollout, Device::cuda));
    }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
