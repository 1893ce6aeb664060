// Layers of the stages of a pipeline: all of them, in order, the slowest stage as fast as can be.

#include "src/models/stages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/models/parameter_specs.h"

namespace temper {
namespace {

ModelConfig model(int64_t layers, int64_t vocab) {
  return {.family = "qwen3",
          .vocab_size = vocab,
          .hidden_size = 64,
          .intermediate_size = 128,
          .num_layers = layers,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 16,
          .max_position_embeddings = 64,
          .rope = {},
          .eos_token_ids = {}};
}

std::vector<int64_t> sizes(const ModelConfig& config, int stages) {
  std::vector<int64_t> list;
  int64_t at = 0;
  for (const LayerRange& s : balanced_stages(config, stages)) {
    EXPECT_EQ(s.begin, at);
    list.push_back(s.end - s.begin);
    EXPECT_GE(list.back(), 1);
    at = s.end;
  }
  EXPECT_EQ(at, config.num_layers);
  EXPECT_EQ(std::ssize(list), stages);
  return list;
}

using List = std::vector<int64_t>;

/// Rows of a head that costs so many layers, or hardly more: a layer of these has 2 x 64 x 64 + 2 x 64 x 32 +
/// 3 x 64 x 128 parameters and little more, 578 rows of the head, of which each costs as much as 4/3.
int64_t head_of(int64_t layers) { return (3 * 578 * layers + 3) / 4; }

TEST(Stages, TheHeadCountsInLayers) {
  EXPECT_EQ(sizes(model(8, 16), 2), (List{4, 4}));
  EXPECT_EQ(sizes(model(8, head_of(2)), 2), (List{5, 3})) << "a head of two layers";
  EXPECT_EQ(sizes(model(8, head_of(100)), 4), (List{3, 2, 2, 1})) << "a head of more than all layers";
  EXPECT_EQ(sizes(model(5, 16), 5), (List{1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes(model(7, 16), 3), (List{3, 2, 2}));
  EXPECT_EQ(sizes(model(61, 16), 1), (List{61}));
  const ModelConfig large = model(5, 1040);  // a head of 1.8 layers, in an update of 2.4
  EXPECT_EQ(balanced_stages(large, 2, StageWork::forward).front().end, 3);
  EXPECT_EQ(balanced_stages(large, 2, StageWork::update).front().end, 4);
}

/// Dense layers among those with experts cost another number of parameters; all cuts are tried.
TEST(Stages, LayersOfSeveralKindsAreWeighed) {
  for (int64_t variant = 0; variant < 64; ++variant) {
    ModelConfig config = model(7, 16 + 300 * (variant % 3));
    config.moe = {.num_experts = 8, .experts_per_token = 2, .expert_size = 32 + 96 * (variant % 2)};
    for (int64_t layer = 0; layer < 6; ++layer)
      if (variant >> layer & 1) config.moe.layers.insert(layer);
    std::vector<double> costs(8);
    for (const ParamSpec& spec : parameter_specs(config))
      if (spec.unit_number >= 1 && spec.unit_number <= 7)
        costs[static_cast<size_t>(spec.unit_number - 1)] += static_cast<double>(active_size(config, spec));
    costs.back() = 4.0 / 3 * static_cast<double>(config.vocab_size * config.hidden_size);
    const auto slowest = [&](const List& cut) {
      double most = 0;
      size_t at = 0;
      for (size_t s = 0; s < cut.size(); ++s) {
        double cost = s + 1 == cut.size() ? costs.back() : 0;
        for (int64_t n = 0; n < cut[s]; ++n) cost += costs[at++];
        most = std::max(most, cost);
      }
      return most;
    };
    double best = 1e300;
    for (int64_t a = 1; a < 7; ++a)
      for (int64_t b = 1; a + b < 7; ++b) best = std::min(best, slowest({a, b, 7 - a - b}));
    const double got = slowest(sizes(config, 3));
    // Layers that are alike are as evenly cut as they go.
    EXPECT_LE(got, best * (1 + 1e-12)) << variant;
  }
}

TEST(Stages, NoOtherCutIsFaster) {
  for (const int64_t head : {0, 1, 3, 7})
    for (int64_t layers = 3; layers <= 9; ++layers) {
      const auto slowest = [&](const List& cut) {
        int64_t most = cut.back() + head;
        for (const int64_t n : cut) most = std::max(most, n);
        return most;
      };
      int64_t best = layers + head;
      for (int64_t a = 1; a < layers; ++a)
        for (int64_t b = 1; a + b < layers; ++b) best = std::min(best, slowest({a, b, layers - a - b}));
      EXPECT_EQ(slowest(sizes(model(layers, head_of(head) + 1), 3)), best) << layers << ", " << head;
    }
}

TEST(Stages, TheEndsHaveEmbeddingAndHead) {
  const std::vector<UnitSet> units = stage_units(parts_of_stages(balanced_stages(model(5, 16), 2), 2));
  ASSERT_EQ(units.size(), 2u);
  EXPECT_TRUE(units[0].has(0) && units[0].has(3) && !units[0].has(4) && !units[0].has(6));
  EXPECT_TRUE(units[1].has(4) && units[1].has(6) && !units[1].has(0));
}

/// Part by part in turn: the first rank has the embedding, the last one the head.
TEST(Stages, RanksWithSeveralParts) {
  const std::vector<LayerRanges> parts = parts_of_stages({{0, 2}, {2, 3}, {3, 5}, {5, 7}, {7, 8}, {8, 9}}, 3);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0], (LayerRanges{{0, 2}, {5, 7}}));
  EXPECT_EQ(parts[2], (LayerRanges{{3, 5}, {8, 9}}));
  const std::vector<UnitSet> units = stage_units(parts);
  EXPECT_TRUE(units[0].has(0) && units[0].has(2) && !units[0].has(3) && units[0].has(6) && !units[0].has(10));
  EXPECT_TRUE(!units[2].has(0) && units[2].has(4) && !units[2].has(6) && units[2].has(9) && units[2].has(10));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
