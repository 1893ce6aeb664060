// What the names of train.freeze stand for, and which layers are alike then.

#include "src/models/freeze.h"

#include <gtest/gtest.h>

#include <tuple>

#include "src/models/layer_kinds.h"
#include "src/models/parameter_specs.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

using Names = std::set<std::string>;
using Texts = std::vector<std::string>;

/// Untied, with three layers.
ModelConfig config_of_three() {
  ModelConfig c = tiny_config();
  c.num_layers = 3;
  c.tie_word_embeddings = false;
  return c;
}

Names frozen(const Texts& names) {
  const Freeze freeze = frozen_parameters(config_of_three(), names);
  EXPECT_TRUE(freeze.defects.empty()) << freeze.defects.front();
  return freeze.parameters;
}

TEST(Freeze, NamesAndPatterns) {
  EXPECT_EQ(frozen({}), Names{});
  EXPECT_EQ(frozen({"model.embed_tokens.weight"}), Names{"embed"});
  EXPECT_EQ(frozen({"lm_head*", "model.norm.weight"}), (Names{"head", "norm"}));
  EXPECT_EQ(frozen({"*down_proj*"}), (Names{"layers.0.mlp.wd", "layers.1.mlp.wd", "layers.2.mlp.wd"}));
  EXPECT_EQ(frozen({"*s.1.*o*_p*"}), (Names{"layers.1.attn.wo", "layers.1.mlp.wd"}));
}

TEST(Freeze, PartsOfOneTogether) {
  EXPECT_EQ(frozen({"*.2.self_attn.q_proj.weight", "*.2.self_attn.k_proj.weight", "*.2.*.v_proj.weight"}),
            Names{"layers.2.attn.wqkv"});
  const Texts defects = frozen_parameters(config_of_three(), {"*.2.self_attn.q_proj.weight"}).defects;
  ASSERT_EQ(defects.size(), 1u);
  EXPECT_EQ(defects[0],
            "model.layers.2.self_attn.q_proj.weight is stored as one with "
            "model.layers.2.self_attn.k_proj.weight, model.layers.2.self_attn.v_proj.weight "
            "(layers.2.attn.wqkv): name all 3 of them, or none");
}

TEST(Freeze, UnknownNamesAndEverything) {
  const ModelConfig c = config_of_three();
  const Texts unknown = frozen_parameters(c, {"model.embed_token.weight"}).defects;
  ASSERT_EQ(unknown.size(), 1u);
  EXPECT_NE(unknown[0].find("did you mean `model.embed_tokens.weight`"), std::string::npos) << unknown[0];
  EXPECT_EQ(frozen_parameters(c, {""}).defects.size(), 1u);
  ModelConfig tied = c;
  tied.tie_word_embeddings = true;
  const Texts head = frozen_parameters(tied, {"lm_head.weight"}).defects;
  ASSERT_EQ(head.size(), 1u);
  EXPECT_NE(head[0].find("its head is model.embed_tokens.weight"), std::string::npos) << head[0];
  const Texts all = frozen_parameters(c, {"*"}).defects;
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NE(all[0].find("nothing is left to train"), std::string::npos) << all[0];
}

TEST(LayerKinds, AreToldByWhatIsTrained) {
  ModelConfig c = config_of_three();
  EXPECT_EQ(layer_kinds(c), (std::vector<int64_t>{0, 0, 0}));
  c.frozen = frozen_parameters(c, {"model.layers.1.*", "model.norm.weight"}).parameters;
  EXPECT_EQ(layer_kinds(c), (std::vector<int64_t>{0, 1, 0}));
  EXPECT_EQ(layer_kinds(c, LayerRange{1, 3}), (std::vector<LayerKind>{{1, 1}, {0, 1}}));
  const ModelConfig some = with_layers(c, {1, 1, 2});
  EXPECT_EQ(some.num_layers, 3);
  EXPECT_EQ(layer_kinds(some), (std::vector<int64_t>{0, 0, 2}));
  EXPECT_TRUE(some.frozen.contains("norm"));
  size_t trained = 0;
  for (const ParamSpec& spec : parameter_specs(some)) trained += spec.trained;
  EXPECT_EQ(trained, parameter_specs(some).size() - some.frozen.size());
}

/// Half of a layer: two units, each in one piece, side by side in the window of the layer.
TEST(Units, ALayerWithBothFallsIntoTwo) {
  ModelConfig c = config_of_three();
  c.frozen = frozen_parameters(c, {"*proj*"}).parameters;
  ParameterStore store;
  for (ParamSpec& spec : parameter_specs(c)) store.add(std::move(spec));
  const UnitGroup layer = store.group(2);
  ASSERT_EQ(layer.size(), 2u);
  EXPECT_NE(layer[0].trained, layer[1].trained);
  EXPECT_EQ(layer[0].range.end, layer[1].range.begin);
  store.allocate(DType::f32, /*with_gradients=*/true, Device::cpu, {0, 2, /*of_values=*/true});
  int64_t at = 0, trained = 0;
  for (const Unit& unit : store.units()) {
    EXPECT_EQ(unit.range.begin, at);
    at = unit.range.end;
    trained += unit.trained ? shard_range(unit.range.size(), 0, 2).size() : 0;
  }
  EXPECT_EQ(at, store.num_elements());
  int64_t windows = 0;
  for (const int64_t number : {1, 2, 4})  // the embedding is smaller than norm and head
    for (const Unit& unit : store.group(number)) windows += unit.trained ? unit.range.size() : 0;
  EXPECT_EQ(store.grad_bytes(), (trained + windows) * 4);
  for (const Parameter& p : store.list()) {
    EXPECT_EQ(p.has_grad(), p.spec.trained) << p.spec.name;
    const Unit& unit = store.units()[p.unit];
    EXPECT_EQ(unit.trained, p.spec.trained) << p.spec.name;
    EXPECT_TRUE(p.offset >= unit.range.begin && p.offset + p.value.size() <= unit.range.end) << p.spec.name;
  }
  Lane lane(Device::cpu);
  store.split_values(lane);
  const CTensor first = store.values_of(layer[0]), second = store.values_of(layer[1]);
  EXPECT_EQ(static_cast<const char*>(first.data) + first.bytes(), second.data);
}

/// What plans measure of one layer holds for each of its kind.
TEST(LayerKinds, HaveEqualParameters) {
  ModelConfig c = config_of_three();
  c.num_layers = 6;
  c.delta = {.layers = {0, 1, 3, 4}, .key_heads = 1, .value_heads = 2, .key_dim = 8, .value_dim = 8, .taps = 4};
  c.moe = {.layers = {1, 2, 4, 5}, .num_experts = 3, .experts_per_token = 1, .expert_size = 8};
  c.frozen = {"layers.4.delta.conv"};
  const auto parameters = [](const ModelConfig& config, int64_t layer) {
    std::vector<std::tuple<std::string, std::vector<int64_t>, bool, size_t>> all;
    const std::string prefix = layer_unit_name(layer) + ".";
    for (const ParamSpec& spec : parameter_specs(config))
      if (spec.name.starts_with(prefix))
        all.emplace_back(spec.name.substr(prefix.size()), spec.shape, spec.trained, spec.parts.size());
    return all;
  };
  const std::vector<int64_t> kinds = layer_kinds(c);
  EXPECT_EQ(kinds, (std::vector<int64_t>{0, 1, 2, 0, 4, 2}));
  for (int64_t a = 0; a < c.num_layers; ++a)
    for (int64_t b = 0; b < c.num_layers; ++b)
      EXPECT_EQ(parameters(c, a) == parameters(c, b),
                kinds[static_cast<size_t>(a)] == kinds[static_cast<size_t>(b)])
          << a << " " << b;
  const ModelConfig some = with_layers(c, {4, 2, 4});
  for (const auto& [now, before] : {std::pair<int64_t, int64_t>{0, 4}, {1, 2}, {2, 4}})
    EXPECT_EQ(parameters(some, now), parameters(c, before)) << now;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
