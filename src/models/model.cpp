#include "src/models/model.h"

#include <map>

#include "src/models/parameter_specs.h"
#include "src/nn/rope_table.h"
#include "src/ops/embedding.h"

namespace temper {

void check_supported(const ModelConfig& c, const std::string& source) {
  constexpr int64_t kMaxHeadDim = 256;
  if (c.head_dim % 8 == 0 && c.head_dim <= kMaxHeadDim) return;
  fail(Exit::data,
       {.what = "this head dimension is not supported",
        .where = source + ", head_dim",
        .why = fmt::format("it is {}; attention takes multiples of 8 up to {}", c.head_dim, kMaxHeadDim),
        .fix = "use a model with another head_dim"});
}

Model::Model(const ModelConfig& config, DType storage, int64_t context_tokens, bool with_gradients,
             Device device)
    : config_(config), storage_(storage), context_tokens_(context_tokens), tables_(device) {
  std::map<std::string, Parameter*> by_name;
  for (ParamSpec& spec : parameter_specs(config)) {
    const std::string name = spec.name;
    by_name[name] = &parameters_.add(std::move(spec));
  }
  parameters_.allocate(storage, with_gradients, device);
  make_rope();

  const auto get = [&](const std::string& name) {
    const auto at = by_name.find(name);
    CHECK(at != by_name.end(), "no parameter {}", name);
    return at->second;
  };
  const auto get_if = [&](bool present, const std::string& name) { return present ? get(name) : nullptr; };
  embedding_ = get("embed");
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const std::string p = fmt::format("layers.{}.", i);
    const Attention::Parameters attention{.wqkv = get(p + "attn.wqkv"),
                                          .bqkv = get_if(config.qkv_bias, p + "attn.bqkv"),
                                          .q_norm = get_if(config.qk_norm, p + "attn.q_norm"),
                                          .k_norm = get_if(config.qk_norm, p + "attn.k_norm"),
                                          .wo = get(p + "attn.wo"),
                                          .bo = get_if(config.o_bias, p + "attn.bo")};
    layers_.emplace_back(Norm(*get(p + "attn_norm"), config.rms_norm_eps),
                         Attention(config, i, attention, rope_),
                         Norm(*get(p + "mlp_norm"), config.rms_norm_eps),
                         Mlp(Linear(*get(p + "mlp.wgu"), get_if(config.mlp_bias, p + "mlp.bgu")),
                             Linear(*get(p + "mlp.wd"), get_if(config.mlp_bias, p + "mlp.bd"))));
  }
  norm_ = std::make_unique<Norm>(*get("norm"), config.rms_norm_eps);
  head_ = std::make_unique<LogprobHead>(*get(config.tie_word_embeddings ? "embed" : "head"));
}

void Model::make_rope() {
  const RopeTable table = make_rope_table(config_.rope, config_.head_dim, context_tokens_);
  const DType dtype = accumulate_dtype(storage_);
  Arena host;
  const Tensor cosine = host.make({context_tokens_, config_.head_dim / 2}, dtype), sine = host.like(cosine);
  fill_cos_sin(table, context_tokens_, cosine, sine);
  rope_ = {tables_.like(cosine), tables_.like(sine)};
  device::upload(device(), rope_.cosine.raw(), cosine.data, cosine.bytes());
  device::upload(device(), rope_.sine.raw(), sine.data, sine.bytes());
}

Tensor Model::forward(Ctx& c, const Batch& b, ModelSaved* saved) const {
  const int64_t tokens = b.num_tokens();
  Residual x{c.scratch.make({tokens, config_.hidden_size}, storage_), {}};
  embedding_forward(c, x.stream, b.tokens, embedding_->value);
  const auto make = [&] { return Residual{c.scratch.like(x.stream), c.scratch.like(x.stream)}; };
  if (saved) {
    saved->layers.resize(layers_.size());
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Residual y = make();
      layers_[i].forward(c, b, y, x, &saved->layers[i]);
      x = y;
    }
  } else {
    Residual even = make(), odd = make();
    for (const DecoderLayer& layer : layers_) {
      ArenaScope scope(c.scratch);
      layer.forward(c, b, even, x, nullptr);
      x = even;
      std::swap(even, odd);
    }
  }
  return norm_->forward_residual(c, c.scratch.like(x.stream), x.stream, x.delta,
                                 saved ? &saved->norm : nullptr);
}

void Model::backward(Ctx& c, const Batch& b, CTensor dhidden, const ModelSaved& saved) const {
  ArenaScope all(c.scratch);
  Tensor dx = c.scratch.like(saved.norm.x), dy = c.scratch.like(saved.norm.x);
  {
    ArenaScope scope(c.scratch);
    const Tensor from_norm = norm_->backward(c, dhidden, saved.norm);
    std::memcpy(dy.raw(), from_norm.data, static_cast<size_t>(from_norm.bytes()));
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    ArenaScope scope(c.scratch);
    layers_[i].backward(c, b, dx, dy, saved.layers[i]);
    std::swap(dx, dy);
  }
  embedding_backward(c, embedding_->grad, dy, b.tokens, config_.pad_token_id);
}

}  // namespace temper
