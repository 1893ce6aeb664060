#pragma once
// Shape of a decoder model, as read from config.json (io/hf/hf_config.h), its adapters, and what of it is not
// trained.
// Every default of a family has been applied and every value checked: sizes are positive, products fit, heads
// divide.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "src/core/dtype.h"
#include "src/nn/adapter_config.h"
#include "src/nn/rope_config.h"

namespace temper {

/// How the Hugging Face tensors of experts are called.
enum class ExpertNames { mlp, block_sparse_moe };

/// Layers whose feed-forward is one of experts (nn/moe.h).
struct MoeConfig {
  std::set<int64_t> layers = {};  // none: all feed-forward layers are dense
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t expert_size = 0;  // units of an expert
  int64_t shared_size = 0;  // of the shared expert, which has a gate; 0: there is none
  bool normalizes = false;  // the weights of the experts of a token add up to 1
  ExpertNames names = ExpertNames::mlp;
  double file_aux_coef = 0;  // router_aux_loss_coef: read to be told, never used

  /// Rows of the router: logits of experts, and of the shared one's gate.
  int64_t num_logits() const { return num_experts + (shared_size > 0 ? 1 : 0); }
};

/// Layers whose mixer is a gated delta net (nn/hybrid/delta_net.h).
struct DeltaConfig {
  std::set<int64_t> layers = {};  // none: the mixers of all layers are attention
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t taps = 0;  // of the convolution
  static constexpr int64_t kMostTaps = 8;
};

struct ModelConfig {
  std::string family;  // model_type of its row in nn/families.h
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of dense layers
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  MoeConfig moe = {};
  bool qk_norm = false;  // per-head RMSNorm of q and k before rope (qwen3)
  DeltaConfig delta = {};
  bool is_hybrid = false;   // norms multiply by 1 + w, and attention has an output gate, in qkv beside q
  int64_t rotated_dim = 0;  // the first elements of a head, which rope turns; 0: all
  RopeConfig rope;
  int64_t pad_token_id = -1;  // this row gets no gradient from the lookup; -1: none
  double initializer_range = 0.02;
  std::vector<int32_t> eos_token_ids;            // config.json and generation_config.json, ascending
  std::vector<int64_t> lost_eos_token_ids = {};  // those that lie outside of the vocabulary
  std::set<std::string> frozen = {};             // parameters of models/parameter_specs.h that nothing trains
  AdapterConfig adapters = {};                   // with them nothing else is trained
  std::string tensor_prefix = "model.";          // of Hugging Face tensors but the head's
  std::vector<std::string> kept_tensors = {};    // how others begin that are neither read nor trained
  std::vector<int64_t> media_token_ids = {};     // in whose place a vision tower would put rows of its own

  int64_t rope_width() const { return rotated_dim > 0 ? rotated_dim : head_dim; }
  /// Layers whose mixer is attention.
  int64_t num_attention_layers() const { return num_layers - static_cast<int64_t>(delta.layers.size()); }
};

}  // namespace temper
