#pragma once
// What the tests of layers share: parameters of a small model with given values in a store of their own, a
// packed batch, and decoder layers made of them.

#include <memory>

#include "src/models/parameter_specs.h"
#include "src/nn/decoder_layer.h"
#include "src/nn/rope_table.h"
#include "tests/support/check_op.h"

namespace temper {

inline ModelConfig layer_config() {
  ModelConfig c;
  c.family = "qwen3";
  c.vocab_size = 11;
  c.hidden_size = 6;
  c.intermediate_size = 5;
  c.num_layers = 1;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 8;
  c.max_position_embeddings = 32;
  return c;
}

inline Values values_of(const CTensor& t) {
  const char* data = static_cast<const char*>(t.data);
  return decode({data, data + t.bytes()}, t.dtype);
}

/// Parameters of a model whose names begin with `prefix`, with gradients that hold NaN and count as zeros.
class LayerParameters {
 public:
  LayerParameters(const ModelConfig& config, const std::string& prefix, DType dtype) {
    for (const ParamSpec& spec : parameter_specs(config))
      if (spec.name.starts_with(prefix)) store_.add(spec);
    store_.allocate(dtype, /*with_gradients=*/true);
    for (Parameter& p : store_.list()) copy(p.grad, Values(static_cast<size_t>(p.grad.size()), std::nan("")));
    store_.clear_grads();
  }

  /// Null where the model has none of this name.
  Parameter* find(const std::string& name) {
    for (Parameter& p : store_.list())
      if (p.spec.name == name) return &p;
    return nullptr;
  }
  Parameter& at(const std::string& name) {
    Parameter* p = find(name);
    CHECK(p != nullptr, "no parameter {}", name);
    return *p;
  }
  /// values[first], values[first + 1], ..: one list for each parameter.
  void set(const Many& values, size_t first = 0) {
    for (Parameter& p : store_.list()) copy(p.value, values.at(first++));
  }
  ParameterStore& store() { return store_; }
  Many gradients() {
    TestCtx c;
    for (const Unit& unit : store_.units()) store_.fill_grads(static_cast<Ctx&>(c).lane, unit);
    Many all;
    for (const Parameter& p : store_.list()) all.push_back(values_of(p.grad));
    return all;
  }
  /// Matrices of about 1 over the root of their width, norms about 1.
  Many random_values(uint64_t seed) const {
    Many all;
    for (const Parameter& p : store_.list()) {
      const double width = static_cast<double>(p.spec.shape.back());
      const bool norm = p.spec.init == Init::ones, matrix = p.spec.shape.size() == 2;
      all.push_back(normal_values(p.spec.size(), seed++, matrix ? 1 / std::sqrt(width) : 0.3, norm ? 1 : 0));
    }
    return all;
  }

 private:
  static void copy(const Tensor& to, const Values& values) {
    CHECK(static_cast<int64_t>(values.size()) == to.size(), "{} values for shape {}", values.size(),
          to.shape_text());
    std::memcpy(to.raw(), encode(values, to.dtype).data(), static_cast<size_t>(to.bytes()));
  }
  ParameterStore store_;
};

/// Sequences of these lengths, back to back.
struct LayerBatch {
  std::vector<int32_t> tokens, positions, cu_seqlens{0};

  LayerBatch(const std::vector<int32_t>& lengths, int32_t vocab_size) {
    for (int32_t n : lengths) {
      for (int32_t t = 0; t < n; ++t) positions.push_back(t);
      cu_seqlens.push_back(static_cast<int32_t>(positions.size()));
    }
    tokens = random_ids(size(), vocab_size, 7);
  }
  int64_t size() const { return static_cast<int64_t>(positions.size()); }
  Batch view() const {
    return {.tokens = view_of(tokens.data(), {size()}),
            .positions = view_of(positions.data(), {size()}),
            .cu_seqlens = view_of(cu_seqlens.data(), {static_cast<int64_t>(cu_seqlens.size())})};
  }
};

/// Tables for any position of the model, in the accumulate dtype of `dtype`.
struct LayerRope {
  Arena memory;
  RopeTensors tensors;

  LayerRope(const ModelConfig& config, DType dtype) {
    const int64_t positions = config.max_position_embeddings;
    const int64_t width = config.rope_width();
    tensors.cosine = memory.make({positions, width / 2}, accumulate_dtype(dtype));
    tensors.sine = memory.like(tensors.cosine);
    fill_cos_sin(make_rope_table(config.rope, width, positions), positions, tensors.cosine, tensors.sine);
  }
};

inline Attention::Parameters attention_parameters(LayerParameters& p, int64_t index) {
  const std::string a = fmt::format("layers.{}.attn.", index);
  return {p.find(a + "wqkv"),   p.find(a + "bqkv"), p.find(a + "q_norm"),
          p.find(a + "k_norm"), p.find(a + "wo"),   p.find(a + "bo")};
}

inline Attention make_attention(LayerParameters& p, const ModelConfig& config, int64_t index,
                                const LayerRope& rope) {
  return {config, index, attention_parameters(p, index), rope.tensors};
}

inline Mixer make_mixer(LayerParameters& p, const ModelConfig& config, int64_t index, const LayerRope& rope) {
  const std::string d = fmt::format("layers.{}.delta.", index);
  if (config.delta.layers.contains(index))
    return DeltaNet(config, index,
                    {&p.at(d + "w_in"), &p.at(d + "conv"), &p.at(d + "a_log"), &p.at(d + "dt_bias"),
                     &p.at(d + "norm"), &p.at(d + "w_out")});
  if (config.is_hybrid) return GatedAttention(config, index, attention_parameters(p, index), rope.tensors);
  return make_attention(p, config, index, rope);
}

/// The layers that a dense decoder layer is made of.
struct LayerParts {
  Norm attn_norm;
  Attention attn;
  Norm mlp_norm;
  Mlp mlp;

  LayerParts(LayerParameters& p, const ModelConfig& config, int64_t index, const LayerRope& rope)
      : LayerParts(p, config, index, rope, fmt::format("layers.{}.", index)) {}
  DecoderLayer layer() const { return {attn_norm, attn, mlp_norm, mlp}; }

 private:
  LayerParts(LayerParameters& p, const ModelConfig& config, int64_t index, const LayerRope& rope,
             const std::string& l)
      : attn_norm(p.at(l + "attn_norm"), config.rms_norm_eps),
        attn(make_attention(p, config, index, rope)),
        mlp_norm(p.at(l + "mlp_norm"), config.rms_norm_eps),
        mlp(Linear(p.at(l + "mlp.wgu"), p.find(l + "mlp.bgu")),
            Linear(p.at(l + "mlp.wd"), p.find(l + "mlp.bd"))) {}
};

/// A decoder layer of any kind.
inline DecoderLayer make_layer(LayerParameters& p, const ModelConfig& config, int64_t index,
                               const LayerRope& rope) {
  const std::string l = fmt::format("layers.{}.", index);
  const auto norm = [&](const char* name) {
    return Norm(p.at(l + name), config.rms_norm_eps, /*offset=*/config.is_hybrid);
  };
  const auto mlp = [&](const std::string& name) {
    return Mlp(Linear(p.at(name + "wgu"), p.find(name + "bgu")),
               Linear(p.at(name + "wd"), p.find(name + "bd")));
  };
  const Mixer mixer = make_mixer(p, config, index, rope);
  if (!config.moe.layers.contains(index))
    return {norm("attn_norm"), mixer, norm("mlp_norm"), mlp(l + "mlp.")};
  std::optional<Mlp> shared;
  if (config.moe.shared_size > 0) shared = mlp(l + "shared.");
  return {norm("attn_norm"), mixer, norm("mlp_norm"),
          Moe(config.moe, {&p.at(l + "moe.router"), &p.at(l + "moe.wgu"), &p.at(l + "moe.wd")}, shared)};
}

}  // namespace temper
