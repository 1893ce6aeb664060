#include "src/models/parameter_specs.h"

#include "src/nn/adapter_specs.h"

namespace temper {
namespace {

/// A norm of the residual stream or of heads.
ParamSpec norm_spec(const ModelConfig& c, const std::string& ours, const std::string& hf, int64_t width) {
  return {.name = ours,
          .parts = {{hf, width}},
          .shape = {width},
          .partial_grad = true,
          .init = c.is_hybrid ? Init::zeros : Init::ones};
}

void add_attention(std::vector<ParamSpec>& specs, const ModelConfig& c, const std::string& ours,
                   const std::string& hf) {
  const int64_t nq = c.num_heads, nk = c.num_kv_heads, q = nq * c.head_dim, kv = nk * c.head_dim;
  const int64_t projected_q = c.is_hybrid ? 2 * q : q;  // each head with its gate
  const std::string attn = hf + "self_attn.";
  specs.push_back({.name = ours + "attn.wqkv",
                   .parts = {{attn + "q_proj.weight", projected_q, nq},
                             {attn + "k_proj.weight", kv, nk},
                             {attn + "v_proj.weight", kv, nk}},
                   .shape = {projected_q + 2 * kv, c.hidden_size},
                   .shard = Shard::rows});
  if (c.qkv_bias)
    specs.push_back({.name = ours + "attn.bqkv",
                     .parts = {{attn + "q_proj.bias", projected_q, nq},
                               {attn + "k_proj.bias", kv, nk},
                               {attn + "v_proj.bias", kv, nk}},
                     .shape = {projected_q + 2 * kv},
                     .shard = Shard::rows,
                     .init = Init::zeros});
  if (c.qk_norm) {
    specs.push_back(norm_spec(c, ours + "attn.q_norm", attn + "q_norm.weight", c.head_dim));
    specs.push_back(norm_spec(c, ours + "attn.k_norm", attn + "k_norm.weight", c.head_dim));
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

/// A gated delta net. What decides how long a state lasts stays in a wide type: its rounding is seen.
void add_delta_net(std::vector<ParamSpec>& specs, const ModelConfig& c, const std::string& ours,
                   const std::string& hf) {
  const DeltaConfig& d = c.delta;
  const int64_t keys = d.key_heads * d.key_dim, values = d.value_heads * d.value_dim, qkv = 2 * keys + values;
  // q, k and v of one tensor.
  const auto qkv_parts = [&](const std::string& name) {
    return std::vector<HfPart>{
        {name, keys, d.key_heads}, {name, keys, d.key_heads}, {name, values, d.value_heads}};
  };
  const std::string net = hf + "linear_attn.";
  std::vector<HfPart> inputs = qkv_parts(net + "in_proj_qkv.weight");
  inputs.push_back({net + "in_proj_z.weight", values, d.value_heads});
  for (const char* gate : {"in_proj_b.weight", "in_proj_a.weight"})
    inputs.push_back({net + gate, d.value_heads, d.value_heads});
  specs.push_back({.name = ours + "delta.w_in",
                   .parts = std::move(inputs),
                   .shape = {qkv + values + 2 * d.value_heads, c.hidden_size},
                   .shard = Shard::rows});
  specs.push_back({.name = ours + "delta.conv",
                   .parts = qkv_parts(net + "conv1d.weight"),
                   .shape = {qkv, d.taps},
                   .shard = Shard::rows,
                   .row_shape = {1, d.taps}});
  specs.push_back({.name = ours + "delta.a_log",
                   .parts = {{net + "A_log", d.value_heads, d.value_heads}},
                   .shape = {d.value_heads},
                   .shard = Shard::rows,
                   .init = Init::log_uniform,
                   .wide = true});
  specs.push_back({.name = ours + "delta.dt_bias",
                   .parts = {{net + "dt_bias", d.value_heads, d.value_heads}},
                   .shape = {d.value_heads},
                   .shard = Shard::rows,
                   .init = Init::ones});
  specs.push_back({.name = ours + "delta.norm",
                   .parts = {{net + "norm.weight", d.value_dim}},
                   .shape = {d.value_dim},
                   .partial_grad = true,
                   .init = Init::ones,
                   .wide = true});
  specs.push_back({.name = ours + "delta.w_out",
                   .parts = {{net + "out_proj.weight", c.hidden_size}},
                   .shape = {c.hidden_size, values},
                   .shard = Shard::rows,
                   .grad_by_columns = true});
}

/// A dense layer of `f` units, or a shared expert.
void add_mlp(std::vector<ParamSpec>& specs, const ModelConfig& c, const std::string& ours,
             const std::string& mlp, int64_t f) {
  specs.push_back({.name = ours + "wgu",
                   .parts = {{mlp + "gate_proj.weight", f}, {mlp + "up_proj.weight", f}},
                   .shape = {2 * f, c.hidden_size},
                   .shard = Shard::rows});
  if (c.mlp_bias)
    specs.push_back({.name = ours + "bgu",
                     .parts = {{mlp + "gate_proj.bias", f}, {mlp + "up_proj.bias", f}},
                     .shape = {2 * f},
                     .shard = Shard::rows,
                     .init = Init::zeros});
  specs.push_back({.name = ours + "wd",
                   .parts = {{mlp + "down_proj.weight", c.hidden_size}},
                   .shape = {c.hidden_size, f},
                   .shard = Shard::rows,
                   .grad_by_columns = true});
  if (c.mlp_bias)
    specs.push_back({.name = ours + "bd",
                     .parts = {{mlp + "down_proj.bias", c.hidden_size}},
                     .shape = {c.hidden_size},
                     .shard = Shard::rows,
                     .init = Init::zeros});
}

/// A matrix of blocks of rows, an expert's each.
ParamSpec expert_spec(const ModelConfig& c, const std::string& name, const std::string& experts,
                      const std::vector<const char*>& tensors, const std::vector<int64_t>& shape) {
  ParamSpec spec{.name = name,
                 .parts = {},
                 .shape = {c.moe.num_experts * shape[0], shape[1]},
                 .shard = Shard::experts,
                 .summed_over = Axis::edp};
  const int64_t rows = shape[0] / std::ssize(tensors);
  for (int64_t e = 0; e < c.moe.num_experts; ++e)
    for (const char* tensor : tensors)
      spec.parts.push_back({fmt::format("{}{}.{}.weight", experts, e, tensor), rows});
  return spec;
}

void add_moe(std::vector<ParamSpec>& specs, const ModelConfig& c, const std::string& ours,
             const std::string& hf) {
  const bool mixtral = c.moe.names == ExpertNames::block_sparse_moe;
  const std::string moe = hf + (mixtral ? "block_sparse_moe." : "mlp."), experts = moe + "experts.";
  ParamSpec router{.name = ours + "moe.router",
                   .parts = {{moe + "gate.weight", c.moe.num_experts}},
                   .shape = {c.moe.num_logits(), c.hidden_size},
                   .partial_grad = true};
  if (c.moe.shared_size > 0) router.parts.push_back({moe + "shared_expert_gate.weight", 1});
  specs.push_back(std::move(router));
  specs.push_back(expert_spec(c, ours + "moe.wgu", experts,
                              mixtral ? std::vector{"w1", "w3"} : std::vector{"gate_proj", "up_proj"},
                              {2 * c.moe.expert_size, c.hidden_size}));
  specs.push_back(expert_spec(c, ours + "moe.wd", experts, {mixtral ? "w2" : "down_proj"},
                              {c.hidden_size, c.moe.expert_size}));
  if (c.moe.shared_size > 0) add_mlp(specs, c, ours + "shared.", moe + "shared_expert.", c.moe.shared_size);
}

}  // namespace

int64_t active_size(const ModelConfig& c, const ParamSpec& spec) {
  const bool of_experts = spec.name.ends_with(".moe.wgu") || spec.name.ends_with(".moe.wd");
  return of_experts ? spec.size() / c.moe.num_experts * c.moe.experts_per_token : spec.size();
}

std::set<std::string> adapter_modules(const ModelConfig& c) {
  std::set<std::string> modules{"q_proj", "k_proj", "v_proj", "o_proj"};
  if (c.moe.layers.empty()) modules.insert({"gate_proj", "up_proj", "down_proj"});
  return modules;
}

std::string layer_unit_name(int64_t layer) { return fmt::format("layers.{}", layer); }

std::vector<ParamSpec> parameter_specs(const ModelConfig& c) {
  std::vector<ParamSpec> specs;
  auto end_unit = [&, begin = size_t{0}, number = int64_t{0}](const std::string& name) mutable {
    for (; begin < specs.size(); ++begin) specs[begin].unit = name, specs[begin].unit_number = number;
    ++number;
  };
  specs.push_back({.name = "embed",
                   .parts = {{c.tensor_prefix + "embed_tokens.weight", c.vocab_size}},
                   .shape = {c.vocab_size, c.hidden_size},
                   .also_in = c.tie_word_embeddings ? c.num_layers + 1 : -1,
                   .shard = Shard::vocabulary});
  end_unit(kEmbeddingUnit);
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const size_t first = specs.size();
    const std::string ours = layer_unit_name(layer) + ".",
                      hf = fmt::format("{}layers.{}.", c.tensor_prefix, layer);
    specs.push_back(norm_spec(c, ours + "attn_norm", hf + "input_layernorm.weight", c.hidden_size));
    if (c.delta.layers.contains(layer))
      add_delta_net(specs, c, ours, hf);
    else
      add_attention(specs, c, ours, hf);
    specs.push_back(norm_spec(c, ours + "mlp_norm", hf + "post_attention_layernorm.weight", c.hidden_size));
    if (c.moe.layers.contains(layer))
      add_moe(specs, c, ours, hf);
    else
      add_mlp(specs, c, ours + "mlp.", hf + "mlp.", c.intermediate_size);
    add_adapter_specs(specs, first, c.adapters, adapter_modules(c));
    end_unit(layer_unit_name(layer));
  }
  specs.push_back(norm_spec(c, "norm", c.tensor_prefix + "norm.weight", c.hidden_size));
  if (!c.tie_word_embeddings)
    specs.push_back({.name = "head",
                     .parts = {{"lm_head.weight", c.vocab_size}},
                     .shape = {c.vocab_size, c.hidden_size},
                     .shard = Shard::vocabulary});
  end_unit(kHeadUnit);
  for (ParamSpec& spec : specs) {
    const bool under_adapters = c.adapters.on() && spec.whose != Whose::adapter;
    if (under_adapters) spec.whose = Whose::base;
    spec.trained = !under_adapters && !c.frozen.contains(spec.name);
  }
  return specs;
}

}  // namespace temper
