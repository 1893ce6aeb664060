#include "src/models/parameter_specs.h"

namespace temper {
namespace {

void add_attention(std::vector<ParamSpec>& specs, const ModelConfig& c, const std::string& ours,
                   const std::string& hf) {
  const int64_t nq = c.num_heads, nk = c.num_kv_heads, q = nq * c.head_dim, kv = nk * c.head_dim;
  const std::string attn = hf + "self_attn.";
  specs.push_back({.name = ours + "attn.wqkv",
                   .parts = {{attn + "q_proj.weight", q, nq},
                             {attn + "k_proj.weight", kv, nk},
                             {attn + "v_proj.weight", kv, nk}},
                   .shape = {q + 2 * kv, c.hidden_size},
                   .shard = Shard::rows});
  if (c.qkv_bias)
    specs.push_back({.name = ours + "attn.bqkv",
                     .parts = {{attn + "q_proj.bias", q, nq},
                               {attn + "k_proj.bias", kv, nk},
                               {attn + "v_proj.bias", kv, nk}},
                     .shape = {q + 2 * kv},
                     .shard = Shard::rows,
                     .init = Init::zeros});
  if (c.qk_norm) {
    specs.push_back({.name = ours + "attn.q_norm",
                     .parts = {{attn + "q_norm.weight", c.head_dim}},
                     .shape = {c.head_dim},
                     .partial_grad = true,
                     .init = Init::ones});
    specs.push_back({.name = ours + "attn.k_norm",
                     .parts = {{attn + "k_norm.weight", c.head_dim}},
                     .shape = {c.head_dim},
                     .partial_grad = true,
                     .init = Init::ones});
  }
  specs.push_back({.name = ours + "attn.wo",
                   .parts = {{attn + "o_proj.weight", c.hidden_size}},
                   .shape = {c.hidden_size, q},
                   .shard = Shard::rows,
                   .grad_by_columns = true});
  if (c.o_bias)
    specs.push_back({.name = ours + "attn.bo",
                     .parts = {{attn + "o_proj.bias", c.hidden_size}},
                     .shape = {c.hidden_size},
                     .shard = Shard::rows,
                     .init = Init::zeros});
}

void add_mlp(std::vector<ParamSpec>& specs, const ModelConfig& c, const std::string& ours,
             const std::string& hf) {
  const int64_t f = c.intermediate_size;
  const std::string mlp = hf + "mlp.";
  specs.push_back({.name = ours + "mlp.wgu",
                   .parts = {{mlp + "gate_proj.weight", f}, {mlp + "up_proj.weight", f}},
                   .shape = {2 * f, c.hidden_size},
                   .shard = Shard::rows});
  if (c.mlp_bias)
    specs.push_back({.name = ours + "mlp.bgu",
                     .parts = {{mlp + "gate_proj.bias", f}, {mlp + "up_proj.bias", f}},
                     .shape = {2 * f},
                     .shard = Shard::rows,
                     .init = Init::zeros});
  specs.push_back({.name = ours + "mlp.wd",
                   .parts = {{mlp + "down_proj.weight", c.hidden_size}},
                   .shape = {c.hidden_size, f},
                   .shard = Shard::rows,
                   .grad_by_columns = true});
  if (c.mlp_bias)
    specs.push_back({.name = ours + "mlp.bd",
                     .parts = {{mlp + "down_proj.bias", c.hidden_size}},
                     .shape = {c.hidden_size},
                     .shard = Shard::rows,
                     .init = Init::zeros});
}

ParamSpec norm_spec(const std::string& ours, const std::string& hf, int64_t width) {
  return {.name = ours, .parts = {{hf, width}}, .shape = {width}, .partial_grad = true, .init = Init::ones};
}

}  // namespace

std::string layer_unit_name(int64_t layer) { return fmt::format("layers.{}", layer); }

std::vector<ParamSpec> parameter_specs(const ModelConfig& c) {
  std::vector<ParamSpec> specs;
  auto end_unit = [&, begin = size_t{0}, number = int64_t{0}](const std::string& name) mutable {
    for (; begin < specs.size(); ++begin) specs[begin].unit = name, specs[begin].unit_number = number;
    ++number;
  };
  specs.push_back({.name = "embed",
                   .parts = {{"model.embed_tokens.weight", c.vocab_size}},
                   .shape = {c.vocab_size, c.hidden_size},
                   .also_in = c.tie_word_embeddings ? c.num_layers + 1 : -1,
                   .shard = Shard::vocabulary});
  end_unit(kEmbeddingUnit);
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const std::string ours = layer_unit_name(layer) + ".", hf = fmt::format("model.layers.{}.", layer);
    specs.push_back(norm_spec(ours + "attn_norm", hf + "input_layernorm.weight", c.hidden_size));
    add_attention(specs, c, ours, hf);
    specs.push_back(norm_spec(ours + "mlp_norm", hf + "post_attention_layernorm.weight", c.hidden_size));
    add_mlp(specs, c, ours, hf);
    end_unit(layer_unit_name(layer));
  }
  specs.push_back(norm_spec("norm", "model.norm.weight", c.hidden_size));
  if (!c.tie_word_embeddings)
    specs.push_back({.name = "head",
                     .parts = {{"lm_head.weight", c.vocab_size}},
                     .shape = {c.vocab_size, c.hidden_size},
                     .shard = Shard::vocabulary});
  end_unit(kHeadUnit);
  for (ParamSpec& spec : specs) spec.trained = !c.frozen.contains(spec.name);
  return specs;
}

}  // namespace temper
