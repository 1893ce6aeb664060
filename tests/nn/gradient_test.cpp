// Gradients of every layer, of its inputs and of all its parameters, against central differences in fp64. The
// memory of gradients holds NaN before: the first ones are written.

#include "src/nn/logprob_head.h"
#include "tests/nn/layers.h"

namespace temper {
namespace {

/// Parameters, inputs and batch of one pass through a layer.
struct LayerCase {
  Ctx& c;
  LayerParameters& parameters;
  const LayerRope& rope;
  const LayerBatch& batch;
  const Many& inputs;

  TestTensor tensor(const Values& values) const {
    return TestTensor(c, values, DType::f64,
                      {batch.size(), static_cast<int64_t>(values.size()) / batch.size()});
  }
};
/// Without douts the outputs, with them the gradients of the inputs; all have a row for each token.
using LayerFn = std::function<Many(const LayerCase&, const Many* douts)>;

/// A layer of the parameters whose names begin with `prefix`, with inputs of these widths, on sequences of
/// these lengths.
void check_layer(const std::string& name, const ModelConfig& config, const std::string& prefix,
                 const std::vector<int64_t>& widths, const LayerFn& layer,
                 const std::vector<int32_t>& lengths = {3, 1, 4}) {
  const LayerBatch batch(lengths, static_cast<int32_t>(config.vocab_size));
  Many all;
  for (size_t k = 0; k < widths.size(); ++k) all.push_back(normal_values(batch.size() * widths[k], 10 + k));
  for (Values& values : LayerParameters(config, prefix, DType::f64).random_values(20))
    all.push_back(std::move(values));
  const auto run = [&](Ctx& c, const Many& in, const Many* douts) {
    ArenaScope scope(c.scratch);
    Arena kept;
    Ctx keeping{c.scratch, c.lane, c.threads, &kept};
    LayerParameters parameters(config, prefix, DType::f64);
    parameters.set(in, widths.size());
    const LayerRope rope(config, DType::f64);
    Many out = layer({keeping, parameters, rope, batch, in}, douts);
    if (douts)
      for (Values& values : parameters.gradients()) out.push_back(std::move(values));
    return out;
  };
  check_gradient(
      name, all, [&](Ctx& c, DType, const Many& in) { return run(c, in, nullptr); },
      [&](Ctx& c, DType, const Many& in, const Many& douts) { return run(c, in, &douts); });
}

/// Both addends of the stream before the layer have the gradient of their sum.
void check_decoder_layer(const std::string& name, const ModelConfig& config,
                         const std::vector<int32_t>& lengths = {3, 1, 4}) {
  check_layer(
      name, config, "layers.0.", {config.hidden_size, config.hidden_size},
      [&](const LayerCase& l, const Many* douts) {
        const DecoderLayer layer = make_layer(l.parameters, config, 0, l.rope);
        const TestTensor stream = l.tensor(l.inputs[0]), delta = l.tensor(l.inputs[1]);
        const Residual y{l.c.scratch.like(stream), l.c.scratch.like(stream)};
        LayerSaved saved;
        layer.forward(l.c, l.batch.view(), y, {stream, delta}, l.c.scratch.like(stream), &saved,
                      Keep::all(*l.c.saved));
        if (!douts) {
          Values sum = values_of(y.stream), part = values_of(y.delta);
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
          return Many{sum};
        }
        const Tensor dx = l.c.scratch.like(stream);
        layer.backward(l.c, l.batch.view(), dx, l.tensor((*douts)[0]), saved);
        return Many{values_of(dx), values_of(dx)};
      },
      lengths);
}

TEST(LayerGradients, Linear) {
  for (bool bias : {false, true}) {
    ModelConfig config = layer_config();
    config.mlp_bias = bias;
    const auto layer = [](const LayerCase& l, const Many* douts) {
      const Linear linear(l.parameters.at("layers.0.mlp.wd"), l.parameters.find("layers.0.mlp.bd"));
      const TestTensor x = l.tensor(l.inputs[0]);
      if (!douts) return Many{values_of(linear.forward(l.c, x, l.c.scratch))};
      const TestTensor dy = l.tensor((*douts)[0]);
      return Many{values_of(linear.backward(l.c, dy, x))};
    };
    check_layer(bias ? "linear with bias" : "linear", config, "layers.0.mlp.", {config.intermediate_size},
                layer);
  }
}

TEST(LayerGradients, Norm) {
  check_layer("norm", layer_config(), "layers.0.attn_norm", {6}, [](const LayerCase& l, const Many* douts) {
    const Norm norm(l.parameters.at("layers.0.attn_norm"), 1e-6);
    const TestTensor x = l.tensor(l.inputs[0]);
    const Tensor y = l.c.scratch.like(x);
    NormSaved saved;
    norm.forward_residual(l.c, y, x, x, {}, &saved);
    if (!douts) return Many{values_of(y)};
    const Tensor dx = l.c.scratch.like(x);
    norm.backward_into(l.c, dx, l.tensor((*douts)[0]), {}, saved);
    return Many{values_of(dx)};
  });
}

/// The norm of a + b, and a + b that goes on beside it.
TEST(LayerGradients, NormOfAResidualStream) {
  check_layer("norm of a sum", layer_config(), "layers.0.attn_norm", {6, 6},
              [](const LayerCase& l, const Many* douts) {
                const Norm norm(l.parameters.at("layers.0.attn_norm"), 1e-6);
                const TestTensor a = l.tensor(l.inputs[0]), b = l.tensor(l.inputs[1]);
                const Tensor sum = l.c.scratch.like(a), y = l.c.scratch.like(a);
                NormSaved saved;
                norm.forward_residual(l.c, y, sum, a, b, &saved);
                if (!douts) return Many{values_of(y), values_of(sum)};
                const Tensor dx = l.c.scratch.like(sum);
                norm.backward_into(l.c, dx, l.tensor((*douts)[0]), l.tensor((*douts)[1]), saved);
                return Many{values_of(dx), values_of(dx)};
              });
}

TEST(LayerGradients, Mlp) {
  for (bool bias : {false, true}) {
    ModelConfig config = layer_config();
    config.mlp_bias = bias;
    check_layer(bias ? "mlp with biases" : "mlp", config, "layers.0.mlp.", {config.hidden_size},
                [](const LayerCase& l, const Many* douts) {
                  LayerParameters& p = l.parameters;
                  const Mlp mlp(Linear(p.at("layers.0.mlp.wgu"), p.find("layers.0.mlp.bgu")),
                                Linear(p.at("layers.0.mlp.wd"), p.find("layers.0.mlp.bd")));
                  const TestTensor x = l.tensor(l.inputs[0]);
                  const Tensor y = l.c.scratch.like(x);
                  MlpSaved saved;
                  mlp.forward_into(l.c, y, x, &saved, Keep::all(*l.c.saved));
                  if (!douts) return Many{values_of(y)};
                  return Many{values_of(mlp.backward(l.c, l.tensor((*douts)[0]), x, saved))};
                });
  }
}

/// Experts without a token among them, one that takes all of them, all of them for each token.
TEST(LayerGradients, Experts) {
  for (const auto& [experts, per_token, shared] : {std::tuple{4, 2, 0}, {6, 1, 3}, {1, 1, 0}, {2, 2, 3}})
    for (const bool normalizes : {false, true}) {
      ModelConfig config = layer_config();
      config.moe = {.layers = {0},
                    .num_experts = experts,
                    .experts_per_token = per_token,
                    .expert_size = 5,
                    .shared_size = shared,
                    .normalizes = normalizes};
      const auto name =
          fmt::format("{} of {} experts, shared {}, normalised {}", per_token, experts, shared, normalizes);
      check_decoder_layer(name, config);
    }
}

using HeadCounts = std::vector<std::pair<int64_t, int64_t>>;
/// Head norm and biases of the model families.
std::vector<std::pair<std::string, ModelConfig>> attention_kinds(const HeadCounts& counts) {
  std::vector<std::pair<std::string, ModelConfig>> kinds;
  for (const auto& [q_heads, kv_heads] : counts)
    for (bool head_norm : {false, true})
      for (bool biases : {false, true}) {
        ModelConfig config = layer_config();
        config.num_heads = q_heads;
        config.num_kv_heads = kv_heads;
        config.qk_norm = head_norm;
        config.qkv_bias = config.o_bias = config.mlp_bias = biases;
        kinds.emplace_back(fmt::format("{} heads over {}{}{}", q_heads, kv_heads,
                                       head_norm ? ", head norm" : "", biases ? ", biases" : ""),
                           config);
      }
  return kinds;
}

TEST(LayerGradients, Attention) {
  for (const auto& [name, config] : attention_kinds({{4, 2}, {3, 1}, {2, 2}}))
    check_layer(
        name, config, "layers.0.attn.", {config.hidden_size}, [&](const LayerCase& l, const Many* douts) {
          const Attention attention = make_attention(l.parameters, config, 0, l.rope);
          const TestTensor x = l.tensor(l.inputs[0]);
          AttentionSaved saved;
          const Tensor y = attention.forward(l.c, l.batch.view(), x, &saved, Keep::all(*l.c.saved));
          if (!douts) return Many{values_of(y)};
          return Many{values_of(attention.backward(l.c, l.batch.view(), l.tensor((*douts)[0]), x, saved))};
        });
}

/// The layer takes and leaves the stream as two addends; its gradient is that of their sum.
TEST(LayerGradients, DecoderLayer) {
  for (const auto& [name, config] : attention_kinds({{2, 1}})) check_decoder_layer(name, config);
}

ModelConfig hybrid_config() {
  ModelConfig config = layer_config();
  config.is_hybrid = config.qk_norm = true;
  config.rotated_dim = 4;
  config.max_position_embeddings = 80;
  return config;
}

/// Output gates, norms by 1 + w, rope on a part of each head.
TEST(LayerGradients, GatedAttention) {
  for (const auto& [q_heads, kv_heads] : HeadCounts{{4, 2}, {3, 1}}) {
    ModelConfig config = hybrid_config();
    config.num_heads = q_heads;
    config.num_kv_heads = kv_heads;
    check_decoder_layer(fmt::format("{} gated heads over {}", q_heads, kv_heads), config);
  }
}

/// Value heads two and three times the key heads; several taps and one; a sequence of two chunks.
TEST(LayerGradients, GatedDeltaNet) {
  for (const auto& [key_heads, value_heads, taps] : {std::tuple{2, 4, 4}, {1, 3, 1}}) {
    ModelConfig config = hybrid_config();
    config.delta = {.layers = {0},
                    .key_heads = key_heads,
                    .value_heads = value_heads,
                    .key_dim = 6,
                    .value_dim = 4,
                    .taps = taps};
    const auto name = fmt::format("{} value heads over {}, {} taps", value_heads, key_heads, taps);
    check_decoder_layer(name, config);
    if (key_heads != 1) continue;
    config.hidden_size = config.intermediate_size = 3;
    check_decoder_layer(name + ", two chunks", config, {66});
  }
}

TEST(LayerGradients, ExpertsBehindAGatedDeltaNet) {
  ModelConfig config = hybrid_config();
  config.delta = {.layers = {0}, .key_heads = 1, .value_heads = 2, .key_dim = 4, .value_dim = 3, .taps = 4};
  config.moe = {.layers = {0},
                .num_experts = 4,
                .experts_per_token = 2,
                .expert_size = 5,
                .shared_size = 3,
                .normalizes = true};
  check_decoder_layer("experts behind a delta net", config);
}

TEST(LayerGradients, LogprobHead) {
  for (double temperature : {1.0, 0.7})
    check_layer("head", layer_config(), "head", {6}, [&](const LayerCase& l, const Many* douts) {
      const LogprobHead head(l.parameters.at("head"));
      const TestTensor hidden = l.tensor(l.inputs[0]);
      const CTensor targets = l.batch.view().tokens;
      const TokenStats stats = head.forward(l.c, hidden, targets, temperature);
      if (!douts) return Many{values_of(stats.logprob), values_of(stats.entropy)};
      const int64_t n = l.batch.size();
      const TestTensor dlogprob(l.c, (*douts)[0], DType::f64, {n}),
          dentropy(l.c, (*douts)[1], DType::f64, {n});
      const Tensor dhidden = l.c.scratch.like(hidden);
      head.backward_into(l.c, dhidden, {dlogprob, dentropy}, hidden, targets, stats, temperature);
      return Many{values_of(dhidden)};
    });
}

/// A second backward adds to what the first one wrote; after clear_grads the next one writes again.
TEST(LayerGradients, AddUpUntilTheyAreCleared) {
  ModelConfig config = layer_config();
  config.qk_norm = config.qkv_bias = config.o_bias = config.mlp_bias = true;
  const LayerBatch batch({3, 4}, 11);
  TestCtx ctx;
  Arena kept;
  Ctx c = ctx;
  c.saved = &kept;
  LayerParameters p(config, "layers.0.", DType::f64);
  p.set(p.random_values(20));
  const LayerRope rope(config, DType::f64);
  const DecoderLayer layer = LayerParts(p, config, 0, rope).layer();
  const int64_t T = batch.size(), D = config.hidden_size;
  TestTensor x(c, normal_values(T * D, 1), DType::f64, {T, D}),
      dy(c, normal_values(T * D, 2), DType::f64, {T, D});
  const auto pass = [&] {
    const Residual y{c.scratch.like(x), c.scratch.like(x)};
    LayerSaved saved;
    layer.forward(c, batch.view(), y, {x, {}}, x, &saved, Keep::all(kept));
    layer.backward(c, batch.view(), c.scratch.like(x), dy, saved);
  };
  pass();
  const Many once = p.gradients();
  pass();
  const Many twice = p.gradients();
  p.store().clear_grads();
  pass();
  const Many again = p.gradients();
  for (size_t k = 0; k < once.size(); ++k) {
    Values sum = once[k];
    for (double& g : sum) g += g;
    expect_near("added", twice[k], sum, 1e-14);
    expect_same_bits("written again", again[k], once[k]);
  }
  p.store().clear_grads();
  for (const Values& zeros : p.gradients()) EXPECT_EQ(zeros, Values(zeros.size(), 0.0));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
