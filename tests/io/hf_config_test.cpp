#include "src/io/hf/hf_config.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace temper {
namespace {

ModelConfig parse(const Json& config, std::vector<std::string>* warnings = nullptr) {
  return parse_model_config(config, nullptr, "config.json", warnings);
}

Json minimal(const std::string& type = "llama") {
  return {{"model_type", type},       {"vocab_size", 64},       {"hidden_size", 32},
          {"intermediate_size", 48},  {"num_hidden_layers", 2}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"head_dim", 8},          {"max_position_embeddings", 128},
          {"rms_norm_eps", 1e-6},     {"rope_theta", 1e4},      {"eos_token_id", 2}};
}

Json with(Json config, const Json& changes) {
  for (const auto& [key, value] : changes.items()) config[key] = value;
  return config;
}

void expect_same_shape(const ModelConfig& c, const Json& e, const std::string& name) {
  EXPECT_EQ(c.vocab_size, e["vocab_size"].get<int64_t>()) << name;
  EXPECT_EQ(c.hidden_size, e["hidden_size"].get<int64_t>()) << name;
  EXPECT_EQ(c.intermediate_size, e["intermediate_size"].get<int64_t>()) << name;
  EXPECT_EQ(c.num_layers, e["num_layers"].get<int64_t>()) << name;
  EXPECT_EQ(c.num_heads, e["num_heads"].get<int64_t>()) << name;
  EXPECT_EQ(c.num_kv_heads, e["num_kv_heads"].get<int64_t>()) << name;
  EXPECT_EQ(c.head_dim, e["head_dim"].get<int64_t>()) << name;
  EXPECT_EQ(c.max_position_embeddings, e["max_position_embeddings"].get<int64_t>()) << name;
  EXPECT_EQ(c.rms_norm_eps, e["rms_norm_eps"].get<double>()) << name;
  EXPECT_EQ(c.tie_word_embeddings, e["tie"].get<bool>()) << name;
  EXPECT_EQ(c.qkv_bias, e["qkv_bias"].get<bool>()) << name;
  EXPECT_EQ(c.o_bias, e["o_bias"].get<bool>()) << name;
  EXPECT_EQ(c.mlp_bias, e["mlp_bias"].get<bool>()) << name;
  EXPECT_EQ(c.qk_norm, e["qk_norm"].get<bool>()) << name;
}

void expect_same_rope(const RopeConfig& rope, const Json& e, const std::string& name) {
  EXPECT_EQ(rope.theta, e["theta"].get<double>()) << name;
  EXPECT_EQ(rope.max_position_embeddings.value_or(-1), e["max_position_embeddings"].get<int64_t>()) << name;
  EXPECT_EQ(rope.type, e["rope_type"].get<std::string>()) << name;
  if (rope.type != "default") {
    EXPECT_EQ(rope.factor.value_or(-1), e["factor"].get<double>()) << name;
  }
  if (!e["context"].is_null()) {
    EXPECT_EQ(rope.original_max_position_embeddings.value_or(-1), e["context"].get<int64_t>()) << name;
  }
}

TEST(HfConfig, EverySpellingMeansWhatTransformersMakesOfIt) {
  const Json cases = read_json_file("tests/golden/io/configs.json");
  ASSERT_GE(cases.size(), 15u);
  for (const Json& item : cases) {
    const std::string name = item["name"].get<std::string>();
    const ModelConfig config = parse(item["config"]);
    expect_same_shape(config, item["expected"], name);
    expect_same_rope(config.rope, item["expected"], name);
  }
}

TEST(HfConfig, ExportKeepsEveryKeyAndWritesBothSpellings) {
  for (const Json& item : read_json_file("tests/golden/io/configs.json")) {
    const Json& source = item["config"];
    const Json out = export_config(source, parse(source), DType::bf16, false);
    auto at = out.begin();
    for (const auto& [key, value] : source.items()) {
      ASSERT_NE(at, out.end());
      EXPECT_EQ(at.key(), key) << item["name"];
      const bool filled_in = value.is_null() || (value.is_object() && value.empty());
      EXPECT_TRUE(filled_in || *at == value) << item["name"] << " " << key;
      ++at;
    }
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "dtype", "torch_dtype"})
      EXPECT_TRUE(out.contains(key)) << item["name"] << " " << key;
    EXPECT_EQ(out["dtype"], out["torch_dtype"]) << item["name"];
    expect_same_shape(parse(out), item["expected"], item["name"]);
    expect_same_rope(parse(out).rope, item["expected"], item["name"]);
    Json v4 = out, v5 = out;
    v4.erase("rope_parameters");
    v5.erase("rope_scaling");
    if (!source.contains("rope_scaling")) v5.erase("rope_theta");
    expect_same_rope(parse(v4).rope, item["expected"], item["name"]);
    if (item["name"] != "scaling-wins") expect_same_rope(parse(v5).rope, item["expected"], item["name"]);
  }
}

TEST(HfConfig, ExportSetsTheTypeThatWasAskedFor) {
  const Json source = with(minimal(), {{"torch_dtype", "bfloat16"}});
  EXPECT_EQ(export_config(source, parse(source), DType::f32, false)["dtype"], "bfloat16");
  const Json out = export_config(source, parse(source), DType::f32, true);
  EXPECT_EQ(out["dtype"], "float32");
  EXPECT_EQ(out["torch_dtype"], "float32");
}

/// A config that says theta twice: that of the rope object counts, before an export and after it.
TEST(HfConfig, ExportKeepsTheThetaThatCounts) {
  const Json source = with(minimal(), {{"rope_theta", 500000.0},
                                       {"rope_parameters",
                                        {{"rope_type", "yarn"},
                                         {"factor", 3.0},
                                         {"original_max_position_embeddings", 32},
                                         {"rope_theta", 1000000.0}}}});
  const ModelConfig model = parse(source);
  EXPECT_EQ(model.rope.theta, 1000000.0);
  EXPECT_EQ(parse(export_config(source, model, DType::f32, false)).rope.theta, 1000000.0);
}

TEST(HfConfig, StopIdsAreTheUnionOfBothFiles) {
  const Json generation = {{"eos_token_id", {7, 3, 2, 99}}};
  const ModelConfig c = parse_model_config(minimal(), &generation, "config.json", nullptr);
  EXPECT_EQ(c.eos_token_ids, (std::vector<int32_t>{2, 3, 7}));
  EXPECT_EQ(c.lost_eos_token_ids, (std::vector<int64_t>{99}));
  Json absent = minimal();
  absent.erase("eos_token_id");
  EXPECT_EQ(parse(absent).eos_token_ids, (std::vector<int32_t>{2}));
  EXPECT_EQ(parse_model_config(absent, &generation, "c", nullptr).eos_token_ids,
            (std::vector<int32_t>{2, 3, 7}));
  EXPECT_TRUE(parse(with(minimal(), {{"eos_token_id", nullptr}})).eos_token_ids.empty());
}

TEST(HfConfig, DefaultsOfAFamilyAreUsedWithAWarning) {
  std::vector<std::string> warnings;
  const ModelConfig c = parse({{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}}, &warnings);
  EXPECT_EQ(c.vocab_size, 151936);
  EXPECT_EQ(c.num_kv_heads, 32);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_EQ(warnings.size(), 10u);
  warnings.clear();
  parse(minimal(), &warnings);
  EXPECT_TRUE(warnings.empty());
}

TEST(HfConfig, FamilyComesFromArchitectureOrModelType) {
  Json config = with(minimal(), {{"architectures", {"LlamaForCausalLM"}}});
  config.erase("model_type");
  EXPECT_EQ(parse(config).family, "llama");
  EXPECT_EQ(parse(minimal("qwen2")).family, "qwen2");
}

TEST(HfConfig, SlidingWindowsCountOnlyWhenSomeLayerUsesOne) {
  const Json on = with(minimal("qwen2"), {{"use_sliding_window", true}, {"sliding_window", 64}});
  EXPECT_NO_THROW(parse(on));  // max_window_layers is 28 when absent
  EXPECT_NO_THROW(parse(with(on, {{"sliding_window", 128}, {"max_window_layers", 0}})));
  EXPECT_NO_THROW(parse(with(on, {{"sliding_window", nullptr}, {"max_window_layers", 0}})));
  EXPECT_NO_THROW(parse(with(on, {{"layer_types", {"full_attention", "full_attention"}}})));
  EXPECT_NO_THROW(parse(with(on, {{"use_sliding_window", false}, {"max_window_layers", 0}})));
  EXPECT_NO_THROW(parse(with(minimal(), {{"sliding_window", 16}, {"use_sliding_window", true}})));
  expect_error(Exit::data, {"use_sliding_window", "64", "128"}, "window", [&] {
    parse(with(on, {{"max_window_layers", 1}}));
  });
  expect_error(Exit::data, {"sliding_window"}, "layer types", [&] {
    parse(with(on, {{"layer_types", {"full_attention", "sliding_attention"}}}));
  });
}

struct BadConfig {
  Json changes;
  std::vector<std::string> words;
};

std::vector<BadConfig> bad_values() {
  return {
      {{{"vocab_size", 0}}, {"vocab_size", "0"}},
      {{{"vocab_size", -5}}, {"vocab_size", "-5"}},
      {{{"vocab_size", "32"}}, {"vocab_size"}},
      {{{"vocab_size", 64.5}}, {"vocab_size"}},
      {{{"vocab_size", 18446744073709551615u}}, {"vocab_size"}},
      {{{"hidden_size", int64_t{1} << 40}}, {"hidden_size"}},
      {{{"hidden_size", {32}}}, {"hidden_size", "array"}},
      {{{"num_hidden_layers", 1e30}}, {"num_hidden_layers"}},
      {{{"num_hidden_layers", true}}, {"num_hidden_layers"}},
      {{{"num_hidden_layers", 16384}, {"hidden_size", 1 << 20}, {"intermediate_size", 1 << 24}}, {"2^44"}},
      {{{"num_key_value_heads", 3}}, {"num_key_value_heads", "3", "4"}},
      {{{"num_key_value_heads", 8}}, {"num_key_value_heads"}},
      {{{"num_attention_heads", 5}, {"num_key_value_heads", 5}, {"head_dim", nullptr}},
       {"num_attention_heads", "32"}},
      {{{"num_attention_heads", 16384}, {"num_key_value_heads", 16384}, {"head_dim", 4096}},
       {"head_dim 4096"}},
      {{{"head_dim", 7}}, {"head_dim", "7"}},
      {{{"head_dim", 0}}, {"head_dim"}},
      {{{"intermediate_size", {{"a", 1}}}}, {"intermediate_size", "object"}},
      {{{"max_position_embeddings", 0}}, {"max_position_embeddings"}},
      {{{"rms_norm_eps", -1e-6}}, {"rms_norm_eps"}},
      {{{"rms_norm_eps", "1e-6"}}, {"rms_norm_eps"}},
      {{{"tie_word_embeddings", 1}}, {"tie_word_embeddings"}},
      {{{"attention_bias", "no"}}, {"attention_bias"}},
      {{{"hidden_act", "gelu"}}, {"hidden_act", "gelu"}},
      {{{"quantization_config", {{"quant_method", "fp8"}}}}, {"quantization_config"}},
      {{{"partial_rotary_factor", 0.5}}, {"partial_rotary_factor"}},
      {{{"model_type", "mistral"}}, {"mistral", "LlamaForCausalLM", "Qwen3ForCausalLM"}},
      {{{"model_type", 3}}, {"model_type"}},
      {{{"model_type", nullptr}}, {"architectures", "Qwen2ForCausalLM"}},
      {{{"architectures", {"LlamaForSequenceClassification"}}},
       {"LlamaForSequenceClassification", "supported"}},
      {{{"architectures", {"Qwen2ForCausalLM"}}}, {"llama", "Qwen2ForCausalLM"}},
      {{{"architectures", Json::array()}}, {"architectures"}},
      {{{"eos_token_id", -1}}, {"eos_token_id"}},
      {{{"eos_token_id", "</s>"}}, {"eos_token_id"}},
      {{{"eos_token_id", {1, nullptr}}}, {"eos_token_id"}},
      {{{"pad_token_id", 64}}, {"pad_token_id"}},
  };
}

std::vector<BadConfig> bad_rope_values() {
  return {
      {{{"rope_theta", 0}}, {"rope_theta"}},
      {{{"rope_theta", "1e4"}}, {"rope_theta"}},
      {{{"rope_scaling", 3}}, {"rope_scaling"}},
      {{{"rope_scaling", {{"rope_type", "su"}, {"factor", 2}}}}, {"rope_scaling.rope_type", "su", "yarn"}},
      {{{"rope_scaling", {{"type", "mrope"}}}}, {"rope_scaling.type", "mrope"}},
      {{{"rope_scaling", {{"type", 4}}}}, {"rope_scaling.type"}},
      {{{"rope_scaling", {{"type", "linear"}}}}, {"rope_scaling.factor", "linear"}},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", -2}}}}, {"rope_scaling.factor", "-2"}},
      {{{"rope_scaling", {{"type", "yarn"}}}}, {"rope_scaling.factor"}},
      {{{"rope_scaling",
         {{"type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}}},
       {"high_freq_factor"}},
      {{{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}}}},
       {"short_factor", "4"}},
      {{{"rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}}}, {"full_attention", "layer type"}},
      {{{"rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.25}}}},
       {"partial_rotary_factor"}},
      {{{"initializer_range", -1}}, {"initializer_range"}},
  };
}

TEST(HfConfig, RefusesBadValuesByKey) {
  for (const std::vector<BadConfig>& list : {bad_values(), bad_rope_values()})
    for (const BadConfig& bad : list)
      expect_error(Exit::data, bad.words, bad.changes.dump(), [&] { parse(with(minimal(), bad.changes)); });
  for (const Json& whole : {Json::array(), Json(3), Json(nullptr), Json("llama")})
    expect_error(Exit::data, {"object"}, whole.dump(), [&] { parse(whole); });
  expect_error(Exit::data, {"generation_config"}, "generation", [&] {
    const Json generation = Json::array({1});
    parse_model_config(minimal(), &generation, "config.json");
  });
}

TEST(HfConfig, EveryKeyWithEveryWrongTypeIsRefusedOrHarmless) {
  const Json base = with(minimal("qwen3"), {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}});
  const std::vector<Json> values = {nullptr,
                                    true,
                                    -1,
                                    0,
                                    1.5,
                                    1e300,
                                    "x",
                                    Json::array(),
                                    Json::object(),
                                    Json::array({Json::object()}),
                                    18446744073709551615u};
  int refused = 0;
  for (const auto& [key, unused] : base.items())
    for (const Json& value : values) {
      try {
        const ModelConfig c = parse(with(base, {{key, value}}));
        EXPECT_GT(c.head_dim * c.num_heads * c.num_kv_heads * c.vocab_size, 0);
      } catch (const Error& e) {
        ++refused;
        EXPECT_EQ(e.code(), Exit::data) << e.what();
      }
    }
  EXPECT_GT(refused, 80);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
