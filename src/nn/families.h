#pragma once
// The families of models that can be read: a row each. All are one decoder (models/parameter_specs.h), told
// apart by what their config.json leaves out and by a few switches. Sizes are those that transformers assumes
// when a key is absent; 0: derived from other keys.

#include <cstdint>
#include <span>
#include <string_view>

#include "src/nn/model_config.h"

namespace temper {

/// Whether the products of a layer have biases.
enum class Biases {
  never,
  as_attention_bias,  // q, k, v and o by the key "attention_bias"
  queries_and_keys,   // q, k and v always, o never
  as_qkv_bias,        // q, k and v by the key "qkv_bias", which is true where it is absent; o never
};

/// Which layers look back through the window of "sliding_window" where "use_sliding_window" says so; it is
/// refused where it would be used.
enum class Window {
  never,
  upper_layers,  // those from max_window_layers on, where "layer_types" does not say which
  lower_layers,  // every other one of those before max_window_layers, likewise
  all_layers,
  if_set,  // all, where "sliding_window" is not null; there is no "use_sliding_window"
};

/// What transformers assumes of the experts of a family.
struct FamilyExperts {
  int64_t number = 0;     // none: its feed-forward layers are dense
  int64_t per_token = 0;  //
  int64_t size = 0;       // 0: intermediate_size
  int64_t shared_size = 0;
  bool normalizes = false;  // always; else by the key "norm_topk_prob"
  ExpertNames names = ExpertNames::mlp;
  bool in_all_layers = false;     // whatever "decoder_sparse_step" and "mlp_only_layers" say
  bool normalizes_unset = false;  // what an absent "norm_topk_prob" means
};

struct Family {
  const char* model_type;    // of config.json
  const char* architecture;  // likewise
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim,
      max_positions;
  Biases attention_biases;
  bool reads_mlp_bias;  // the key "mlp_bias"
  bool qk_norm;         // per-head RMSNorm of q and k before rope
  Window window;
  int64_t default_eos;  // where neither file has eos_token_id; -1: none
  double norm_eps = 1e-6, rope_theta = 1e4;
  FamilyExperts experts = {};
  bool is_hybrid = false;         // ModelConfig::is_hybrid, with gated delta nets in most layers
  bool in_vision_folder = false;  // the keys are those of "text_config"
  bool grouped_inputs = false;    // files have the rows of a delta net's first product key head by key head
};

std::span<const Family> families();
/// Null: there is none of this name.
const Family* find_family(std::string_view model_type);

}  // namespace temper
