// Whole runs on a GPU whose trained parameters have a frozen model beside them: the base of adapters, which
// is the reference, too, and a teacher. Rollout and trainer agree to the bit in every step, memory is what
// `check` says, and nothing that waits in host memory shows.

#include "tests/gpu/gpu_runs.h"

namespace temper {
namespace {

/// 100M parameters.
constexpr const char* kWide = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 6, "num_attention_heads": 16,
  "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 6400, "max_position_embeddings": 512,
  "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.03,
  "eos_token_id": 2})";

const char* kConfig = R"(
run.name = "run"
run.steps = 4
run.device = "cuda"
optimizer.lr = 1e-3
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 6
rollout.samples_per_prompt = 8
rollout.max_new_tokens = 64
rollout.kv_memory = 200000000
train.samples_per_update = 12
train.max_tokens_per_microbatch = 1024
model.context_tokens = 200
checkpoint.export_hf_every = 4
)";
constexpr int kSteps = 4;

class FrozenModels : public GpuRunFixture {
 protected:
  void SetUp() override {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    program_.write("run.toml", run_config(kConfig));
    program_.write("data.jsonl", sums(29));
    ASSERT_EQ(program_.init_model("model", kWide), 0) << output();
  }
  void train(const std::string& name, const std::string& keys) const {
    ASSERT_EQ(program_.run(fmt::format("train run.toml run.name={} {}", name, keys)), 0) << output();
    for (const Json& line : program_.metrics(name)) {
      EXPECT_EQ(line.at("actor/rollout_logprob_diff_max"), 0.0) << line.dump();
      EXPECT_GT(line.at("actor/grad_norm"), 0.0);
    }
  }
  void expect_same(const std::string& a, const std::string& b) const {
    EXPECT_EQ(metrics(a), metrics(b)) << a << ", " << b;
    for (int step = 1; step <= kSteps; ++step)
      EXPECT_TRUE(rollouts(a, step) == rollouts(b, step)) << a << ", " << b << ", step " << step;
  }
};

TEST_F(FrozenModels, AdaptersBesideTheirBase) {
  const std::string adapters = "lora.rank=32 ";
  train("run", adapters);
  expect_planned_memory("run", adapters, 3);
  train("offloaded", adapters + "train.offload.optimizer=true");
  expect_same("run", "offloaded");
  train("full", adapters + "train.recompute.granularity=full rollout.prefill_chunk_tokens=16");
  EXPECT_TRUE(rollouts("run", kSteps) == rollouts("full", kSteps));
}

TEST_F(FrozenModels, ATeacherThatWaitsInHostMemory) {
  ASSERT_EQ(program_.init_model("teacher", kTensorCores), 0) << output();
  const std::string taught = "roles.teacher.path=teacher algorithm.teacher_coef=0.5 algorithm.kl_coef=0 ";
  train("run", taught + "roles.teacher.offload=false");
  train("offloaded", taught + "roles.teacher.offload=true");
  expect_same("run", "offloaded");
  expect_planned_memory("offloaded", taught + "roles.teacher.offload=true", 3);
  EXPECT_TRUE(program_.metrics("run").back().contains("rollout/teacher_kl"));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
