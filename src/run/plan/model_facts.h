#pragma once
// What the plan needs to know of a model, from its config.json alone.

#include <cstdint>
#include <string>

#include "src/nn/model_config.h"

namespace temper {

struct ModelFacts {
  int64_t num_parameters = 0;
  int64_t context_tokens = 0;  // max_position_embeddings
  int64_t vocab_size = 0;
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t q_width = 0, kv_width = 0;  // heads x head_dim
  int64_t num_heads = 0;
  bool qk_norm = false;
};
ModelFacts model_facts(const ModelConfig& config);

/// Of a model folder; Exit::usage where it has no config.json, Exit::data where no kernel can run the shape.
ModelFacts read_model_facts(const std::string& model_path);

}  // namespace temper
