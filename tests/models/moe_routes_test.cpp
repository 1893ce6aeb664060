// Which experts take which tokens, against transformers (tools/golden/golden_moe.py): of each layer of the
// golden models, in the packed pass and greedy; of 1,000 random rows of routers as wide as those of real
// models.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "src/models/layer_pass.h"
#include "src/ops/backend.h"
#include "src/ops/experts.h"
#include "src/ops/linear.h"
#include "tests/support/golden_case.h"

namespace temper {
namespace {

constexpr const char* kModels = "tests/golden/moe/models";

std::vector<int32_t> sorted_rows(std::vector<int32_t> ids, int64_t per_token) {
  for (auto at = ids.begin(); at != ids.end(); at += per_token) std::sort(at, at + per_token);
  return ids;
}

TEST(MoeRoutes, OfEveryLayerAreThoseOfTransformers) {
  int layers = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    const std::string name = entry.path().filename();
    if (name.find("window") != std::string::npos) continue;
    const GoldenFile golden(entry.path() / "golden.safetensors"), routes(entry.path() / "routes.safetensors");
    const auto model = load_model(entry.path(), DType::f32, 128);
    const std::vector<int32_t> tokens = golden.integers("tokens"), ends = golden.integers("cu_seqlens");
    std::vector<int32_t> positions;
    for (size_t s = 0; s + 1 < ends.size(); ++s)
      for (int32_t t = ends[s]; t < ends[s + 1]; ++t) positions.push_back(t - ends[s]);
    Backend backend(Device::cpu);
    Arena kept;
    Ctx c = backend.ctx();
    c.saved = &kept;
    PassSaved saved;
    forward_pass(c, *model,
                 {.tokens = view_of(tokens.data(), {std::ssize(tokens)}),
                  .positions = view_of(positions.data(), {std::ssize(positions)}),
                  .cu_seqlens = view_of(ends.data(), {std::ssize(ends)})},
                 &saved);
    const MoeConfig& moe = model->config().moe;
    for (const int64_t layer : moe.layers) {
      const auto& of = std::get<MoeSaved>(saved.layers[static_cast<size_t>(layer)].feed_forward);
      const std::string number = "/" + std::to_string(layer);
      EXPECT_EQ(to_host<int32_t>(c, of.ids),
                sorted_rows(routes.integers("ids" + number), moe.experts_per_token))
          << name << number;
      ++layers;
    }
  }
  EXPECT_GE(layers, 18);
}

constexpr int64_t kWidth = 32;

/// Row r of the router files, as the script makes it.
std::vector<float> router_row(int32_t r) {
  std::vector<float> x;
  for (int64_t i = 0; i < kWidth; ++i) {
    uint32_t h = static_cast<uint32_t>(r * kWidth + i);
    h ^= h >> 16;
    h *= 0x7feb352du;
    h ^= h >> 15;
    h *= 0x846ca68bu;
    h ^= h >> 16;
    const float high = static_cast<float>(h >> 24);
    x.push_back(std::ldexp(high - 128.0f, -5 - static_cast<int>(h >> 22 & 3)));
  }
  return x;
}

struct Choices {
  std::vector<int32_t> ids;
  std::vector<double> weights;
};

template <class S>
Choices choose(const std::vector<float>& x, const std::vector<double>& weight, int64_t experts,
               int64_t per_token, bool normalize) {
  const auto narrow = [](const auto& from) {
    std::vector<S> to;
    for (const auto v : from) to.push_back(S(static_cast<float>(v)));
    return to;
  };
  const std::vector<S> rows = narrow(x), w = narrow(weight);
  const int64_t tokens = std::ssize(x) / kWidth;
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  const Tensor logits = c.scratch.make({tokens, experts}, DType::f32),
               ids = c.scratch.make({tokens, per_token}, DType::i32),
               weights = c.scratch.make({tokens, per_token}, DType::f32);
  linear_forward(c, logits, view_of(rows.data(), {tokens, kWidth}), view_of(w.data(), {experts, kWidth}), {});
  choose_experts(c, ids, weights, logits, experts, normalize);
  return {to_host<int32_t>(c, ids), to_host<double>(c, weights)};
}

/// Rows and weights are exact in bf16: its routes are those of fp32, bit for bit.
TEST(MoeRoutes, OfAThousandRows) {
  for (const auto& [family, normalize] :
       {std::pair{"qwen3_moe", true}, {"qwen2_moe", false}, {"mixtral", true}}) {
    const GoldenFile golden(fmt::format("tests/golden/moe/router/{}.safetensors", family));
    const std::vector<double> weight = golden.numbers("weight"), want = golden.numbers("weights");
    const std::vector<int32_t> rows = golden.integers("rows");
    std::vector<float> x;
    for (const int32_t row : rows)
      for (const float v : router_row(row)) x.push_back(v);
    const int64_t experts = std::ssize(weight) / kWidth, per_token = std::ssize(want) / std::ssize(rows);
    const Choices wide = choose<float>(x, weight, experts, per_token, normalize),
                  narrow = choose<bf16>(x, weight, experts, per_token, normalize);
    EXPECT_EQ(wide.ids, sorted_rows(golden.integers("ids"), per_token)) << family;
    EXPECT_EQ(narrow.ids, wide.ids) << family;
    EXPECT_EQ(narrow.weights, wide.weights) << family;
    std::vector<double> ours = wide.weights, theirs = want;
    std::sort(ours.begin(), ours.end());
    std::sort(theirs.begin(), theirs.end());
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 2e-6) << family;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
