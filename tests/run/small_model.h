#pragma once
// The shape that tests of the plan reckon with.

#include "src/nn/model_config.h"

namespace temper {

inline ModelConfig small_model() {
  return {.family = "qwen3",
          .vocab_size = 100,
          .hidden_size = 64,
          .intermediate_size = 128,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 16,
          .max_position_embeddings = 1024,
          .tie_word_embeddings = true,
          .qk_norm = true,
          .rope = {},
          .eos_token_ids = {}};
}

}  // namespace temper
