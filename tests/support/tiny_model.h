#pragma once
// A small random Qwen3 model made in memory, with weights large enough that its distributions are not flat,
// and random prompts for it.

#include <memory>
#include <vector>

#include "src/models/model.h"
#include "src/nn/init.h"
#include "src/rollout/request.h"
#include "tests/support/random.h"

namespace temper {

inline constexpr int64_t kTinyVocab = 96;
inline constexpr int64_t kTinyContext = 5120;

inline ModelConfig tiny_config(int64_t vocab_size = kTinyVocab) {
  ModelConfig c;
  c.family = "qwen3";
  c.vocab_size = vocab_size;
  c.hidden_size = 32;
  c.intermediate_size = 48;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 16;
  c.max_position_embeddings = kTinyContext;
  c.qk_norm = true;
  c.initializer_range = 0.3;
  return c;
}

/// The same with experts: one of them shared, or not.
inline ModelConfig tiny_moe_config(int64_t shared_size) {
  ModelConfig c = tiny_config();
  c.family = shared_size > 0 ? "qwen2_moe" : "qwen3_moe";
  c.moe = {.layers = {0, 1},
           .num_experts = 12,
           .experts_per_token = 3,
           .expert_size = 16,
           .shared_size = shared_size,
           .normalizes = shared_size == 0};
  return c;
}

inline std::unique_ptr<Model> tiny_model_of(const ModelConfig& config, DType storage,
                                            int64_t context_tokens = kTinyContext) {
  auto model = std::make_unique<Model>(config, ModelOptions{storage, context_tokens});
  random_init(model->parameters(), config, 5);
  return model;
}

inline std::unique_ptr<Model> tiny_model(DType storage, int64_t vocab_size = kTinyVocab,
                                         int64_t context_tokens = kTinyContext) {
  return tiny_model_of(tiny_config(vocab_size), storage, context_tokens);
}

/// A prompt of `length` tokens that depends on the data position alone.
inline Request tiny_request(int64_t data_position, int64_t length, int32_t num_samples,
                            int64_t vocab_size = kTinyVocab) {
  return {data_position,
          random_ids(length, static_cast<int32_t>(vocab_size), static_cast<uint64_t>(1000 + data_position)),
          num_samples};
}

}  // namespace temper
