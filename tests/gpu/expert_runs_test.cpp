// Runs of a mixture of experts on a GPU with keys of [moe]: losses of routers have the values and gradients
// of the CPU, frozen routers keep their bits, routes are recorded, compared and followed, with experts over
// ranks too.

#include "src/io/hf/safetensors.h"
#include "tests/gpu/gpu_runs.h"

namespace temper {
namespace {

/// Widths for tensor cores; the middle layer is dense.
constexpr const char* kModel = R"({"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
  "hidden_size": 128, "intermediate_size": 192, "moe_intermediate_size": 64,
  "shared_expert_intermediate_size": 64, "num_experts": 12, "num_experts_per_tok": 3,
  "norm_topk_prob": false, "mlp_only_layers": [1], "num_hidden_layers": 3, "num_attention_heads": 2,
  "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 6400, "max_position_embeddings": 256,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.1,
  "eos_token_id": 2})";
constexpr const char* kSft = R"(
run.name = "run"
run.device = "cuda"
run.steps = 3
algorithm.name = "sft"
train.samples_per_update = 4
)";
constexpr const char* kGrpo = R"(
run.name = "grpo"
run.device = "cuda"
run.steps = 4
optimizer.lr = 0.05
rollout.prompts_per_step = 3
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 8
rollout.kv_memory = 40000000
rollout.stop = ["e", "a", "o"]
reward.functions = [{name = "length", weight = -1, max_tokens = 8, buffer_tokens = 7}]
)";

class GpuExpertRuns : public RunFixture {
 protected:
  void SetUp() override {
    ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    program_.write("run.toml", run_config(kSft));
    program_.write("grpo.toml", run_config(kGrpo));
    program_.write("data.jsonl", sums(20));
    ASSERT_EQ(program_.init_model("model", kModel), 0) << output();
  }
  std::string tensor(const std::string& file, const std::string& name) const {
    const SafetensorsFile from(program_.path(file), file);
    const TensorInfo& info = from.tensors().at(name);
    std::string bytes(static_cast<size_t>(info.end - info.begin), '\0');
    from.read(info.begin, info.end - info.begin, bytes.data());
    return bytes;
  }
  double first(const std::string& run, const char* name) const {
    const Json line = program_.metrics(run).front();
    return line.contains(name) ? line.at(name).get<double>() : 0.0;
  }
  std::vector<double> mismatches(const std::string& run) const {
    std::vector<double> values;
    for (const Json& line : program_.metrics(run)) values.push_back(line.value("moe/routing_mismatch", -1.0));
    return values;
  }
};

TEST_F(GpuExpertRuns, FrozenRoutersKeepTheirBits) {
  ASSERT_EQ(program_.run("train run.toml run.steps=20 moe.router.freeze=true checkpoint.export_hf_every=10"),
            0)
      << output();
  const auto file = [](int step) {
    return fmt::format("runs/run/export/step-{:06d}/model.safetensors", step);
  };
  const std::string before = file(10), now = file(20);
  for (const char* layer : {"0", "2"})
    for (const char* name : {"gate", "shared_expert_gate", "experts.3.up_proj"}) {
      const std::string of = fmt::format("model.layers.{}.mlp.{}.weight", layer, name);
      EXPECT_EQ(tensor(now, of) == tensor(before, of), std::string(name).find("gate") != std::string::npos)
          << of;
    }
}

TEST_F(GpuExpertRuns, LossesOfRoutersAreThoseOfTheCpu) {
  const std::string losses = R"( 'moe.aux_loss=["sequence","global","z"]' moe.aux_coef=0.5 moe.z_coef=0.1)",
                    share = " cluster.shared_gpus=allow";
  ASSERT_EQ(program_.run("train run.toml run.name=none"), 0) << output();
  ASSERT_EQ(program_.run("train run.toml run.name=gpu" + losses), 0) << output();
  ASSERT_EQ(program_.run("train run.toml run.name=gpu32 run.dtype=fp32" + losses), 0) << output();
  ASSERT_EQ(program_.run("train run.toml run.name=exact run.device=cpu run.dtype=fp64" + losses), 0)
      << output();
  ASSERT_EQ(program_.run_ranks(2, "train run.toml run.name=tp roles.trainer.tp=2" + losses + share), 0)
      << output();
  ASSERT_EQ(program_.run_ranks(2, "train run.toml run.name=ep roles.trainer.ep=2" + losses + share), 0)
      << output();
  for (const char* name : {"moe/aux_loss", "moe/z_loss", "train/grad_norm"}) {
    const double want = first("exact", name);
    EXPECT_GT(want, 0) << name;
    EXPECT_NEAR(first("gpu32", name), want, 1e-5 * want) << name;
    EXPECT_NEAR(first("gpu", name), want, 0.02 * want) << name;
    for (const char* run : {"tp", "ep"})
      EXPECT_NEAR(first(run, name), first("gpu", name), 1e-3 * want) << run << " " << name;
  }
  EXPECT_GT(first("gpu", "train/grad_norm"), 1.01 * first("none", "train/grad_norm"));
  EXPECT_EQ(first("none", "moe/aux_loss"), 0);
}

TEST_F(GpuExpertRuns, RoutesAreRecordedComparedAndFollowed) {
  const std::string share = " cluster.shared_gpus=allow";
  ASSERT_EQ(program_.run("train grpo.toml run.name=free"), 0) << output();
  ASSERT_EQ(program_.run("train grpo.toml run.name=on moe.record_routes=true"), 0) << output();
  ASSERT_EQ(
      program_.run_ranks(2, "train grpo.toml run.name=ep roles.trainer.ep=2 moe.record_routes=true" + share),
      0)
      << output();
  EXPECT_EQ(mismatches("free"), std::vector<double>(4, -1));
  EXPECT_EQ(mismatches("on"), std::vector<double>(4, 0));
  EXPECT_EQ(mismatches("ep"), std::vector<double>(4, 0));
  for (const char* name : {"actor/rollout_logprob_diff_max", "actor/grad_norm"})
    EXPECT_EQ(program_.metrics("on").back().at(name), program_.metrics("free").back().at(name)) << name;
  const std::string lag = "run.max_policy_lag=2 moe.replay=rollout ";
  ASSERT_EQ(program_.run("train grpo.toml run.name=lag " + lag), 0) << output();
  ASSERT_EQ(program_.run_ranks(2, "train grpo.toml run.name=two roles.trainer.tp=2 " + lag + share), 0)
      << output();
  for (const char* run : {"lag", "two"}) {
    EXPECT_EQ(mismatches(run).front(), 0) << run;
    EXPECT_GT(mismatches(run).back(), 0) << run;
  }
  ASSERT_EQ(program_.run("train grpo.toml run.name=again --replay runs/lag/rollouts/step-000001.jsonl "
                         "moe.replay=rollout"),
            0)
      << output();
  EXPECT_EQ(mismatches("again"), std::vector<double>{0});
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
