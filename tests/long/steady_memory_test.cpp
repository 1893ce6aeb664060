// A long run does not grow: of 300 steps of one shape (GRPO on two ranks; validation, a checkpoint and an
// export every ten) the resident memory of each rank is flat after step 20, when each kind of work has been
// done twice.

#include "tests/long/memory_watch.h"

namespace temper {
namespace {

constexpr int kSteps = 300, kWindow = 20;

/// A megabyte is 1 % of a rank: MPI adds half a one to its queues once, at a step that timing chooses.
const char* kModel = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 128,
  "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 32, "vocab_size": 6400, "max_position_embeddings": 256, "tie_word_embeddings": true,
  "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2, "eos_token_id": 2})";

/// Every prompt and every response is as long as all others.
const char* kConfig = R"(
run.name = "run"
run.steps = 300
rollout.prompts_per_step = 8
rollout.samples_per_prompt = 4
rollout.max_prompt_tokens = 24
rollout.max_new_tokens = 24
rollout.ignore_eos = true
train.max_tokens_per_microbatch = 512
algorithm.kl_coef = 0.1
validation.data = "data.jsonl"
validation.every = 10
checkpoint.every = 10
checkpoint.export_hf_every = 10
)";

/// The heap gives back at once what is freed: what it keeps would hide megabytes that are never freed.
const char* kGiveBack =
    "env GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072 ";

using SteadyMemory = MemoryWatch;

TEST_F(SteadyMemory, IsFlatAfterStep20) {
  program_.write("run.toml", run_config(kConfig));
  std::string data;
  for (int i = 0; i < 16; ++i)
    data +=
        fmt::format("{{\"prompt\":\"What is {} plus {}?\",\"answer\":\"{}\"}}\n", 10 + i, 30 + i, 40 + 2 * i);
  program_.write("data.jsonl", data);
  ASSERT_EQ(program_.init_model("model", kModel), 0) << output();
  expect_flat(kGiveBack + program_.mpirun(2, "train run.toml"), "run", 2, kSteps, kWindow, kWindow);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
