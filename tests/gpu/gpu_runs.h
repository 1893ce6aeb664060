#pragma once
// What tests of whole runs on a GPU share.

#include "tests/support/run_fixture.h"

namespace temper {

/// Heads for the kernels of tensor cores, and a vocabulary that the tokenizer has.
inline constexpr const char* kTensorCores = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 6400, "max_position_embeddings": 512,
  "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.1,
  "eos_token_id": 2})";

}  // namespace temper
