#include "src/nn/decoder_layer.h"

#include "src/ops/elementwise.h"
#include "tests/nn/layers.h"

namespace temper {
namespace {

enum class Rounding { once, twice };

/// Backward of a layer as if the gradient through a norm were rounded before the one past it is added.
void backward_with_two_roundings(Ctx& c, const Batch& b, Tensor dx, CTensor dy, const LayerParts& parts,
                                 const LayerSaved& s) {
  const auto& kept = std::get<MlpSaved>(s.feed_forward);
  const Tensor dmlp = parts.mlp.backward(c, dy, kept.x, kept);
  const Tensor dmiddle = c.scratch.like(dmlp), dnorm = c.scratch.like(dmlp);
  parts.mlp_norm.backward_into(c, dnorm, dmlp, {}, s.mlp_norm);
  add(c, dmiddle, dnorm, dy);
  const Tensor dattended = parts.attn.backward(c, b, dmiddle, std::get<AttentionSaved>(s.mixer).x,
                                               std::get<AttentionSaved>(s.mixer));
  parts.attn_norm.backward_into(c, dnorm, dattended, {}, s.attn_norm);
  add(c, dx, dnorm, dmiddle);
}

/// Gradients of the input and of all parameters of a stack of layers. in: x, dy, parameters.
Many stack_gradients(DType dtype, const ModelConfig& config, const LayerBatch& batch, const Many& in,
                     Rounding rounding) {
  TestCtx ctx;
  Arena kept;
  Ctx c = ctx;
  c.saved = &kept;
  LayerParameters p(config, "layers.", dtype);
  p.set(in, 2);
  const LayerRope rope(config, dtype);
  const Batch b = batch.view();
  const int64_t T = batch.size(), D = config.hidden_size;
  TestTensor stream(c, in[0], dtype, {T, D}), upstream(c, in[1], dtype, {T, D});
  std::vector<LayerParts> layers;
  std::vector<LayerSaved> saved(static_cast<size_t>(config.num_layers));
  for (int64_t i = 0; i < config.num_layers; ++i) layers.emplace_back(p, config, i, rope);
  Residual x{stream, {}};
  for (size_t i = 0; i < layers.size(); ++i) {
    const Residual y{c.scratch.like(x.stream), c.scratch.like(x.stream)};
    const Tensor sum = i == 0 ? x.stream : kept.like(x.stream);
    layers[i].layer().forward(c, b, y, x, sum, &saved[i], Keep::all(kept));
    x = y;
  }
  Tensor dy = upstream, dx = c.scratch.like(dy);
  for (size_t i = layers.size(); i-- > 0; std::swap(dx, dy)) {
    if (rounding == Rounding::once)
      layers[i].layer().backward(c, b, dx, dy, saved[i]);
    else
      backward_with_two_roundings(c, b, dx, dy, layers[i], saved[i]);
  }
  Many all = p.gradients();
  all.insert(all.begin(), values_of(dy));
  return all;
}

/// Root of the squared distance over the squares of `want`, mean over the tensors.
double distance(const Many& got, const Many& want) {
  double sum = 0;
  for (size_t k = 0; k < want.size(); ++k) {
    double off = 0, size = 0;
    for (size_t i = 0; i < want[k].size(); ++i) {
      off += (got[k][i] - want[k][i]) * (got[k][i] - want[k][i]);
      size += want[k][i] * want[k][i];
    }
    sum += std::sqrt(off / size);
  }
  return sum / static_cast<double>(want.size());
}

/// In bf16 one rounding less for each norm: gradients come no farther from fp64. In fp32 and fp64 an addition
/// after the norm is the same bits.
TEST(DecoderLayer, GradientPastANormIsRoundedOnce) {
  double once = 0, twice = 0;
  int runs = 0;
  for (const auto& [hidden, layers, head_norm] :
       {std::tuple{32, 2, true}, {64, 4, false}, {48, 6, true}, {24, 12, false}})
    for (uint64_t seed = 0; seed < 6; ++seed, ++runs) {
      ModelConfig config = layer_config();
      config.hidden_size = hidden;
      config.intermediate_size = 2 * hidden;
      config.num_layers = layers;
      config.qk_norm = head_norm;
      const LayerBatch batch({9, 14, 20}, 11);
      Many in{normal_values(batch.size() * hidden, 100 * seed + 1),
              normal_values(batch.size() * hidden, 100 * seed + 2)};
      const Many parameters = LayerParameters(config, "layers.", DType::f32).random_values(100 * seed + 3);
      in.insert(in.end(), parameters.begin(), parameters.end());
      for (Values& values : in) values = round_to(values, DType::bf16);
      const auto run = [&](DType dtype, Rounding r) { return stack_gradients(dtype, config, batch, in, r); };
      const Many exact = run(DType::f64, Rounding::once), narrow = run(DType::f32, Rounding::once);
      once += distance(run(DType::bf16, Rounding::once), exact);
      twice += distance(run(DType::bf16, Rounding::twice), exact);
      const Many wide_twice = run(DType::f64, Rounding::twice),
                 narrow_twice = run(DType::f32, Rounding::twice);
      for (size_t k = 0; k < exact.size(); ++k) {
        expect_same_bits("fp64", exact[k], wide_twice[k]);
        expect_same_bits("fp32", narrow[k], narrow_twice[k]);
      }
    }
  std::printf("bf16 gradients to fp64, relative: rounded once %.3e, twice %.3e\n", once / runs, twice / runs);
  EXPECT_LE(once, twice);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
