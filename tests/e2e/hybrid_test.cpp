// Runs of hybrid models: rollout and trainer have one numerics in every layout, with states that are shared,
// preempted and begun again, and with weights of steps before.

#include "tests/support/run_fixture.h"
#include "tests/support/run_list.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

constexpr const char* kTinyHybrid = R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
  "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2,
  "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 8,
  "linear_conv_kernel_dim": 4, "vocab_size": 6400, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
  "tie_word_embeddings": true, "hidden_act": "silu", "initializer_range": 0.2, "eos_token_id": 2})";

/// Responses pass the border of a chunk; not all of a step run at once, and pages run out.
constexpr const char* kConfig = R"(
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
    program_.write("run.toml", run_config(kConfig));
    program_.write("data.jsonl", sums(40));
    ASSERT_EQ(program_.init_model("model", kTinyHybrid), 0) << output();
  }
};

TEST_F(HybridRun, RolloutAndTrainerHaveOneNumerics) {
  const std::vector<std::pair<const char*, const char*>> layouts{
      {"dp2", ""},
      {"pp2", "roles.trainer.pp=2"},
      {"vpp2", "roles.trainer.pp=2 roles.trainer.vpp=2"},
      {"zero3", "roles.trainer.zero=3"},
      {"apart", "roles.trainer.ranks='\"0\"' roles.rollout.ranks='\"1\"'"},
      {"tp2",
       "roles.trainer.tp=2 roles.rollout.tp=2 validation.data=data.jsonl validation.every=2 "
       "validation.max_prompts=4"},
      {"tp2cp2", "roles.trainer.cp=2 roles.rollout.tp=2"},
  };
  std::vector<RanksRun> runs;
  for (const auto& [name, keys] : layouts)
    runs.push_back({2, fmt::format("train run.toml run.name={} {}", name, keys)});
  ASSERT_EQ(run_each(runs), 0) << output();
  double preempted = 0;
  for (const auto& [name, keys] : layouts) {
    for (const Json& line : program_.metrics(name)) {
      EXPECT_EQ(line.at("actor/rollout_logprob_diff_max"), 0.0) << name << " " << line.at("step");
      preempted += line.value("rollout/preemptions", 0.0);
    }
    EXPECT_EQ(rollouts(name, 1), rollouts("dp2", 1)) << name;
  }
  EXPECT_GT(preempted, 0);
  expect_score_agrees(program_, "vpp2", 3, "model", "");
}

/// Responses take several steps and go on with other weights: their states are made again.
TEST_F(HybridRun, ALagAndPartsOfResponses) {
  ASSERT_EQ(run_each({{2,
                       "train run.toml run.max_policy_lag=1 rollout.tokens_per_step=30 run.steps=4 "
                       "roles.trainer.ranks='\"0\"' roles.rollout.ranks='\"1\"'"}}),
            0)
      << output();
  EXPECT_GT(expect_score_agrees(program_, "run", 4, "model", ""), 0);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
