// Operations that utilisation counts, against products counted by hand: of experts those that a token meets,
// of a gated delta net its products and its state.

#include "src/train/flops.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

ModelConfig dense() {
  ModelConfig c;
  c.family = "qwen3";
  c.vocab_size = 20;
  c.hidden_size = 8;
  c.intermediate_size = 12;
  c.num_layers = 3;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = 4;
  c.max_position_embeddings = 64;
  return c;
}

/// The first layer stays dense.
ModelConfig with_experts(ModelConfig c, int64_t shared) {
  c.family = "qwen2_moe";
  c.moe = {
      .layers = {1, 2}, .num_experts = 5, .experts_per_token = 2, .expert_size = 6, .shared_size = shared};
  return c;
}

/// The last layer has attention.
ModelConfig with_delta_nets(ModelConfig c) {
  c.family = "qwen3_5_text";
  c.is_hybrid = c.qk_norm = true;
  c.delta = {.layers = {0, 1}, .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5, .taps = 4};
  return c;
}

/// A sequence of `tokens` rows.
double flops(const ModelConfig& config, int tokens) {
  Trajectory t;
  t.prompt_tokens.assign(1, 1);
  t.response.tokens.assign(static_cast<size_t>(tokens), 1);  // the last one goes through no layer
  t.response.mask.assign(t.response.tokens.size(), 1);
  const Trajectory* all[] = {&t};
  return training_flops(config, all);
}

// Queries, keys, values, output; gate, up, down; the head, which is as wide as the embedding.
constexpr double kAttention = 8 * (8 + 4 + 4) + 8 * 8, kMlp = 3 * 8 * 12, kHead = 20 * 8;
// The router, two experts of six units; with the shared one its ten units and a row of the router.
constexpr double kExperts = 8 * 5 + 3 * 8 * (2 * 6), kShared = kExperts + 8 + 3 * 8 * 10;
// Inputs q and k of 6, v and z of 20, a and b of 4; output; four states of 3 by 5, read twice, written once.
constexpr double kDeltaNet = 8 * (6 + 6 + 20 + 20 + 4 + 4) + 20 * 8 + 3 * 4 * 3 * 5;
// Gates of the output stand beside the queries.
constexpr double kGated = kAttention + 8 * 8;

TEST(TrainingFlops, CountWhatATokenMeets) {
  for (const double n : {1.0, 6.0}) {
    const auto expect = [&](const ModelConfig& config, double weights, double attention_layers) {
      EXPECT_EQ(flops(config, static_cast<int>(n)), 6 * n * (weights + attention_layers * 8 * n))
          << config.family << ", " << n << " tokens";
    };
    expect(dense(), 3 * (kAttention + kMlp) + kHead, 3);
    expect(with_experts(dense(), 0), 3 * kAttention + kMlp + 2 * kExperts + kHead, 3);
    expect(with_experts(dense(), 10), 3 * kAttention + kMlp + 2 * kShared + kHead, 3);
    expect(with_delta_nets(dense()), 2 * kDeltaNet + kGated + 3 * kMlp + kHead, 1);
    expect(with_experts(with_delta_nets(dense()), 10), 2 * kDeltaNet + kGated + kMlp + 2 * kShared + kHead,
           1);
  }
}

/// A third of what is not trained is saved: the gradient of its weights.
TEST(TrainingFlops, WhatIsNotTrainedHasNoGradient) {
  const ModelConfig all = with_experts(with_delta_nets(dense()), 10);
  const auto saved = [&](const std::set<std::string>& frozen) {
    ModelConfig some = all;
    some.frozen = frozen;
    return flops(all, 6) - flops(some, 6);
  };
  EXPECT_EQ(saved({"layers.1.moe.wgu"}), 2 * 6 * (2 * 2 * 6 * 8)) << "two experts of five";
  EXPECT_EQ(saved({"layers.1.moe.router", "layers.1.shared.wd"}), 2 * 6 * (6 * 8 + 10 * 8));
  EXPECT_EQ(saved({"layers.0.delta.w_in", "layers.0.delta.w_out"}), 2 * 6 * (60 * 8 + 20 * 8));
  EXPECT_EQ(saved({"layers.0.delta.conv", "layers.0.delta.a_log", "layers.2.attn_norm", "embed"}), 0);
  EXPECT_EQ(saved({"head"}), 2 * 6 * kHead);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
