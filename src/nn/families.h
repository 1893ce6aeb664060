#pragma once
// The families of models that can be read: a row each. All are one decoder (models/parameter_specs.h), told
// apart by what their config.json leaves out and by a few switches. Sizes are those that transformers assumes
// when a key is absent; 0: derived from other keys.

#include <cstdint>
#include <span>

namespace temper {

/// Whether the products of a layer have biases.
enum class Biases {
  as_attention_bias,  // q, k, v and o by the key "attention_bias"
  queries_and_keys,   // q, k and v always, o never
};

struct Family {
  const char* model_type;    // of config.json
  const char* architecture;  // likewise
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim,
      max_positions;
  Biases attention_biases;
  bool reads_mlp_bias;        // the key "mlp_bias"
  bool qk_norm;               // per-head RMSNorm of q and k before rope
  bool reads_sliding_window;  // its keys, to refuse a window that would be used
  int64_t default_eos;        // where neither file has eos_token_id; -1: none
};

std::span<const Family> families();

}  // namespace temper
