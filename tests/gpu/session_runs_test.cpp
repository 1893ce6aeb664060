// Sessions with the policy on a GPU: whatever arrives when, with recorded steps or not, over other ranks,
// rollouts are equal, and each sampled token has the bits of training; 10^5 of them with the layers of
// Qwen3-1.7B.

#include "tests/agents/session_runs.h"

#include "tests/agents/player.h"
#include "tests/gpu/gpu_runs.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

/// The layers of Qwen3-1.7B, with the vocabulary of the tokenizer.
constexpr const char* kLayers = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16,
  "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 6400, "max_position_embeddings": 2048,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "initializer_range": 0.02,
  "eos_token_id": 2})";
const std::string kOnGpu = "run.device=cuda cluster.shared_gpus=allow model.path=wide ";

class GpuSessions : public SessionRuns {
 protected:
  void SetUp() override {
    SessionRuns::SetUp();
    ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  }
};

TEST_F(GpuSessions, OrdersRanksAndPagesChangeNothing) {
  ASSERT_EQ(program_.init_model("wide", kTensorCores), 0) << output();
  const std::string words = "--play episode --turns 3 --forget --two ";
  ASSERT_EQ(run(1, train("whole", words, kOnGpu)), 0) << output();
  expect_one_numerics("whole");
  struct Way {
    const char *name, *words, *more;
    int ranks;
  };
  const Way ways[] = {
      {"late", "--jitter 40", "", 1},
      {"services", "", "rollout.server.threads=2", 1},
      {"pages", "--jitter 10", "rollout.kv_memory=2000000 rollout.max_running_sequences=6", 1},
      {"apart", "", R"(roles.rollout.ranks='"0"' roles.trainer.ranks='"1"')", 2},
      {"tp2", "", "roles.rollout.tp=2 roles.trainer.tp=2", 2}};
  for (const Way& way : ways) {
    ASSERT_EQ(run(way.ranks, train(way.name, words + way.words, kOnGpu + way.more)), 0)
        << way.name << output();
    EXPECT_TRUE(rollouts("whole", 1) == rollouts(way.name, 1)) << way.name;
    expect_one_numerics(way.name);
    if (std::string(way.name) != "tp2") expect_same_rollouts("whole", way.name);
  }
}

TEST_F(GpuSessions, TurnsOverPipesAreCutBySteps) {
  ASSERT_EQ(program_.init_model("wide", kTensorCores), 0) << output();
  const std::string words = "--play service --turns 3", service = "kind = \"service\", workers = 2";
  ASSERT_EQ(run(1, train("whole", words, kOnGpu, service)), 0) << output();
  ASSERT_EQ(run(1, train("cut", words, kOnGpu + "run.max_policy_lag=1 rollout.tokens_per_step=20", service)),
            0)
      << output();
  expect_one_numerics("whole");
  EXPECT_GT(expect_score_agrees(program_, "cut", kSteps, "wide", "--device cuda --dtype bf16"), 0);
}

TEST_F(GpuSessions, ManyTokensOfALargeModel) {
  ASSERT_EQ(program_.init_model("wide", kLayers), 0) << output();
  const std::string large =
      "run.steps=1 rollout.prompts_per_step=80 rollout.samples_per_prompt=8 train.samples_per_update=640 "
      "rollout.max_new_tokens=300 rollout.max_turn_tokens=70 model.context_tokens=1024 "
      "rollout.max_running_sequences=256 train.max_tokens_per_microbatch=16384 checkpoint.every=0 "
      "checkpoint.every_minutes=0 checkpoint.export_hf_every=0 optimizer.state=bf16 ";
  ASSERT_EQ(
      run(1, train("large", "--play service --turns 3", kOnGpu + large, "kind = \"service\", workers = 4")),
      0)
      << output();
  int64_t tokens = 0;
  for (const Json& response : responses("large", 1))
    for (const Json& sampled : response.at("response_mask")) tokens += sampled.get<int>();
  std::printf("%ld sampled tokens\n", tokens);
  EXPECT_GT(tokens, 100'000);
  expect_one_numerics("large");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (const auto code = temper::play_if_asked(argc, argv)) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
