#include "src/nn/families.h"

namespace temper {
namespace {

constexpr Family kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .vocab_size = 32000,
     .hidden_size = 4096,
     .intermediate_size = 11008,
     .num_layers = 32,
     .num_heads = 32,
     .num_kv_heads = 0,
     .head_dim = 0,
     .max_positions = 2048,
     .attention_biases = Biases::as_attention_bias,
     .reads_mlp_bias = true,
     .qk_norm = false,
     .reads_sliding_window = false,
     .default_eos = 2},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .vocab_size = 151936,
     .hidden_size = 4096,
     .intermediate_size = 22016,
     .num_layers = 32,
     .num_heads = 32,
     .num_kv_heads = 32,
     .head_dim = 0,
     .max_positions = 32768,
     .attention_biases = Biases::queries_and_keys,
     .reads_mlp_bias = false,
     .qk_norm = false,
     .reads_sliding_window = true,
     .default_eos = -1},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .vocab_size = 151936,
     .hidden_size = 4096,
     .intermediate_size = 22016,
     .num_layers = 32,
     .num_heads = 32,
     .num_kv_heads = 32,
     .head_dim = 128,
     .max_positions = 32768,
     .attention_biases = Biases::as_attention_bias,
     .reads_mlp_bias = false,
     .qk_norm = true,
     .reads_sliding_window = true,
     .default_eos = -1},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace temper
