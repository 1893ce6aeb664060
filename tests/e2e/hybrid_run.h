#pragma once
// Short runs of a tiny model with gated delta nets.

#include "tests/support/run_fixture.h"

namespace temper {

inline constexpr const char* kTinyHybrid =
    R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
  "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2,
  "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 8,
  "linear_conv_kernel_dim": 4, "vocab_size": 6400, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
  "tie_word_embeddings": true, "hidden_act": "silu", "initializer_range": 0.2, "eos_token_id": 2})";

/// The same with experts in its layers, one of them shared.
inline std::string tiny_hybrid_moe() {
  Json model = parse_json(kTinyHybrid, "config.json");
  model["architectures"] = {"Qwen3_5MoeForCausalLM"};
  model["model_type"] = "qwen3_5_moe_text";
  model.erase("intermediate_size");
  model["num_experts"] = 8;
  model["num_experts_per_tok"] = 2;
  model["moe_intermediate_size"] = 16;
  model["shared_expert_intermediate_size"] = 24;
  return model.dump();
}

/// Responses pass the border of a chunk; not all of a step run at once, and pages run out.
inline constexpr const char* kHybridConfig = R"(
run.name = "run"
run.steps = 3
optimizer.lr = 1e-2
algorithm.single_group = "zero"
rollout.prompts_per_step = 4
rollout.samples_per_prompt = 2
rollout.max_prompt_tokens = 16
rollout.max_new_tokens = 72
rollout.stop = ["qu"]
rollout.max_running_sequences = 3
rollout.prefill_chunk_tokens = 5
rollout.kv_memory = 28672
reward.functions = [{name = "length", weight = -1, max_tokens = 72, buffer_tokens = 71}]
train.samples_per_update = 4
train.max_tokens_per_microbatch = 128
checkpoint.export_hf_every = 1
)";

class HybridRun : public RunFixture {
 protected:
  void SetUp() override {
    program_.write("run.toml", run_config(kHybridConfig));
    program_.write("data.jsonl", sums(40));
    ASSERT_EQ(program_.init_model("model", kTinyHybrid), 0) << output();
  }
  void expect_one_numerics(const std::string& run) const {
    for (const Json& line : program_.metrics(run))
      EXPECT_EQ(line.at("actor/rollout_logprob_diff_max"), 0.0) << run << " " << line.at("step");
  }
};

}  // namespace temper
