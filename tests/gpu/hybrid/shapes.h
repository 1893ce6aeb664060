#pragma once
// Shapes of public hybrid models.

#include "src/nn/model_config.h"

namespace temper {

/// Qwen3.5-9B, or its first layers: attention in every fourth of them.
inline ModelConfig qwen3_5_9b(int64_t layers, int64_t context_tokens) {
  ModelConfig c;
  c.family = "qwen3_5_text";
  c.is_hybrid = c.qk_norm = true;
  c.hidden_size = 4096;
  c.intermediate_size = 12288;
  c.num_layers = layers;
  c.num_heads = 16;
  c.num_kv_heads = 4;
  c.head_dim = 256;
  c.rotated_dim = 64;
  c.rope.theta = 1e7;
  c.vocab_size = 248320;
  c.max_position_embeddings = context_tokens;
  c.delta = {.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .taps = 4};
  for (int64_t i = 0; i < layers; ++i)
    if (i % 4 != 3) c.delta.layers.insert(i);
  return c;
}

}  // namespace temper
