#include "src/nn/families.h"

#include <algorithm>

namespace temper {
namespace {

/// Qwen3.5, dense.
constexpr Family hybrid(const char* model_type, const char* architecture, bool in_vision_folder) {
  return {.model_type = model_type,
          .architecture = architecture,
          .vocab_size = 248320,
          .hidden_size = 4096,
          .intermediate_size = 12288,
          .num_layers = 32,
          .num_heads = 16,
          .num_kv_heads = 4,
          .head_dim = 256,
          .max_positions = 32768,
          .attention_biases = Biases::as_attention_bias,
          .reads_mlp_bias = false,
          .qk_norm = true,
          .window = Window::never,
          .default_eos = -1,
          .is_hybrid = true,
          .in_vision_folder = in_vision_folder};
}

/// Qwen3.5 with experts.
constexpr Family hybrid_moe(const char* model_type, const char* architecture, bool in_vision_folder) {
  Family f = hybrid(model_type, architecture, in_vision_folder);
  f.hidden_size = 2048, f.num_layers = 40, f.num_kv_heads = 2;
  f.experts = {.number = 256,
               .per_token = 8,
               .size = 512,
               .shared_size = 512,
               .normalizes = true,
               .in_all_layers = true};
  return f;
}

constexpr Family qwen3_next() {
  Family f = hybrid("qwen3_next", "Qwen3NextForCausalLM", /*in_vision_folder=*/false);
  f.vocab_size = 151936, f.hidden_size = 2048, f.intermediate_size = 5632, f.num_layers = 48;
  f.num_kv_heads = 2, f.grouped_inputs = true;
  f.experts = {.number = 512, .per_token = 10, .size = 512, .shared_size = 512, .normalizes_unset = true};
  return f;
}

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
     .window = Window::never,
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
     .window = Window::upper_layers,
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
     .window = Window::upper_layers,
     .default_eos = -1},
    {.model_type = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .vocab_size = 151936,
     .hidden_size = 2048,
     .intermediate_size = 5632,
     .num_layers = 24,
     .num_heads = 16,
     .num_kv_heads = 16,
     .head_dim = 0,
     .max_positions = 32768,
     .attention_biases = Biases::as_qkv_bias,
     .reads_mlp_bias = false,
     .qk_norm = false,
     .window = Window::lower_layers,
     .default_eos = -1,
     .experts = {.number = 60, .per_token = 4, .size = 1408, .shared_size = 5632}},
    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .vocab_size = 151936,
     .hidden_size = 2048,
     .intermediate_size = 6144,
     .num_layers = 24,
     .num_heads = 32,
     .num_kv_heads = 4,
     .head_dim = 0,
     .max_positions = 32768,
     .attention_biases = Biases::as_attention_bias,
     .reads_mlp_bias = false,
     .qk_norm = true,
     .window = Window::all_layers,
     .default_eos = -1,
     .experts = {.number = 128, .per_token = 8, .size = 768}},
    {.model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .vocab_size = 32000,
     .hidden_size = 4096,
     .intermediate_size = 14336,
     .num_layers = 32,
     .num_heads = 32,
     .num_kv_heads = 8,
     .head_dim = 0,
     .max_positions = 131072,
     .attention_biases = Biases::never,
     .reads_mlp_bias = false,
     .qk_norm = false,
     .window = Window::if_set,
     .default_eos = 2,
     .norm_eps = 1e-5,
     .rope_theta = 1e6,
     .experts = {.number = 8,
                 .per_token = 2,
                 .normalizes = true,
                 .names = ExpertNames::block_sparse_moe,
                 .in_all_layers = true}},
    hybrid("qwen3_5", "Qwen3_5ForConditionalGeneration", /*in_vision_folder=*/true),
    hybrid("qwen3_5_text", "Qwen3_5ForCausalLM", /*in_vision_folder=*/false),
    hybrid_moe("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", /*in_vision_folder=*/true),
    hybrid_moe("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", /*in_vision_folder=*/false),
    qwen3_next(),
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view model_type) {
  const auto found =
      std::ranges::find_if(kFamilies, [&](const Family& family) { return family.model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

}  // namespace temper
