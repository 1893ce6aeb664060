// Folders of hybrid models: what is kept comes out as it went in; configs and tensors that mean another model
// are refused by name.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "src/core/check.h"
#include "src/io/hf/folder_writer.h"
#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_export.h"
#include "src/io/hf/hf_import.h"
#include "src/models/parameter_specs.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

const std::string kModels = "tests/golden/hybrid/models/";
const std::string kVision = kModels + "vision-tied-bf16", kSharded = kModels + "vision-sharded",
                  kText = kModels + "text-default", kLongPrefix = kModels + "text-ratio3-long-prefix";

std::string bytes_of(const std::string& path) { return read_file(path, 100 << 20); }

ModelConfig config_of(const Json& json) { return parse_model_config(json, nullptr, "config.json"); }

struct Loaded {
  explicit Loaded(const std::string& path, DType dtype) : folder(ModelFolder::open(path)) {
    config = parse_model_config(folder.config(), nullptr, folder.config_path());
    specs = parameter_specs(config);
    folder.match_names(config);
    for (const ParamSpec& spec : specs) store.add(spec);
    store.allocate(dtype, false);
    import_weights(folder, config, store);
  }
  ModelFolder folder;
  ModelConfig config;
  std::vector<ParamSpec> specs;
  ParameterStore store;
};

/// Vision tower, further predictions, nested config, wide tensors and either prefix among them.
TEST(HybridFolder, ComesOutByteForByte) {
  for (const std::string& source : {kVision, kSharded, kText, kLongPrefix})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (dtype == DType::bf16 && source != kVision) continue;  // the others are fp32
      const TempDir dir;
      const Loaded model(source, dtype);
      export_model(source, model.specs, store_reader(model.store), dir / "out", {});
      for (const std::string& name : list_directory(source)) {
        if (!name.starts_with("model-") && name != "model.safetensors") continue;
        EXPECT_EQ(bytes_of(join_path(source, name)) == bytes_of(dir / ("out/" + name)), true)
            << source << " " << name;
      }
      EXPECT_EQ(read_json_file(join_path(source, "config.json")), read_json_file(dir / "out/config.json"));
    }
}

/// After a change only text tensors differ.
TEST(HybridFolder, OnlyWhatIsTrainedChanges) {
  const TempDir dir;
  Loaded model(kVision, DType::f32);
  for (Parameter& p : model.store.list())
    for (int64_t i = 0; i < p.value.size(); ++i) p.value.as<float>()[i] += 1.0f;
  export_model(kVision, model.specs, store_reader(model.store), dir / "out", {});
  const ModelFolder before = ModelFolder::open(kVision), after = ModelFolder::open(dir / "out");
  size_t same = 0, other = 0;
  for (const auto& [name, info] : before.tensors()) {
    const TensorInfo& now = after.tensors().at(name);
    EXPECT_EQ(info.dtype, now.dtype) << name;
    EXPECT_EQ(info.shape, now.shape) << name;
    std::string a(static_cast<size_t>(info.end - info.begin), '\0'), b = a;
    before.read_bytes(name, 0, std::ssize(a), a.data());
    after.read_bytes(name, 0, std::ssize(b), b.data());
    const bool kept = name.starts_with("model.visual.") || name.starts_with("mtp.");
    EXPECT_EQ(a == b, kept) << name;
    ++(kept ? same : other);
  }
  EXPECT_GT(same, 10u);
  EXPECT_EQ(other, 27u);
}

TEST(HybridConfig, IsReadFromTheRightPlaces) {
  const ModelConfig nested = config_of(read_json_file(kVision + "/config.json")),
                    flat = config_of(read_json_file(kLongPrefix + "/config.json"));
  EXPECT_TRUE(nested.tie_word_embeddings);  // of the whole model; text_config says false
  EXPECT_EQ(nested.tensor_prefix, "model.language_model.");
  EXPECT_EQ(nested.media_token_ids, (std::vector<int64_t>{46, 47}));
  EXPECT_EQ(nested.eos_token_ids, std::vector<int32_t>{1});
  EXPECT_EQ(nested.rotated_dim, 4);
  EXPECT_EQ(nested.rope.theta, 1e6);
  EXPECT_EQ(nested.delta.layers, std::set<int64_t>{0});
  EXPECT_EQ(flat.tensor_prefix, "model.");
  EXPECT_EQ(flat.delta.layers, (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(flat.delta.value_heads, 3);
  EXPECT_TRUE(flat.qkv_bias);
}

/// Numbers that transformers assumes.
TEST(HybridConfig, Defaults) {
  const ModelConfig c = config_of({{"architectures", {"Qwen3_5ForConditionalGeneration"}},
                                   {"model_type", "qwen3_5"},
                                   {"text_config", Json::object()}});
  EXPECT_EQ(c.vocab_size, 248320);
  EXPECT_EQ(c.num_layers, 32);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.rotated_dim, 64);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(c.delta.layers.size(), 24u);
  EXPECT_FALSE(c.delta.layers.contains(3));
  EXPECT_EQ(c.delta.key_heads, 16);
  EXPECT_EQ(c.delta.value_heads, 32);
  EXPECT_EQ(c.delta.taps, 4);
  EXPECT_FALSE(c.tie_word_embeddings);
  int64_t parameters = 0;
  for (const ParamSpec& spec : parameter_specs(c)) parameters += spec.size();
  EXPECT_EQ(parameters, 8'953'803'264);
}

struct BadKey {
  std::vector<std::string> path;
  Json value;
  std::vector<std::string> words;
};

TEST(HybridConfig, OtherModelsAreRefusedByKey) {
  const BadKey keys[] = {
      {{"text_config", "attn_output_gate"}, false, {"attn_output_gate", "only true"}},
      {{"text_config", "output_gate_type"}, "sigmoid", {"output_gate_type", "sigmoid", "swish"}},
      {{"text_config", "mamba_ssm_dtype"}, "bfloat16", {"mamba_ssm_dtype", "float32"}},
      {{"text_config", "hidden_act"}, "gelu", {"hidden_act", "silu"}},
      {{"text_config", "layer_types"},
       Json::array({"full_attention"}),
       {"layer_types", "num_hidden_layers = 2"}},
      {{"text_config", "layer_types"},
       Json::array({"full_attention", "mamba"}),
       {"layer_types", "mamba", "linear_attention"}},
      {{"text_config", "layer_types"},
       Json::array({"linear_attention", "linear_attention"}),
       {"layer_types", "none of 2 layers has attention"}},
      {{"text_config", "linear_num_value_heads"},
       3,
       {"linear_num_value_heads", "3", "linear_num_key_heads 2"}},
      {{"text_config", "linear_num_key_heads"}, 0, {"linear_num_key_heads", "1 to"}},
      {{"text_config", "linear_key_head_dim"}, -8, {"linear_key_head_dim"}},
      {{"text_config", "linear_conv_kernel_dim"}, 9, {"linear_conv_kernel_dim", "1 to 8"}},
      {{"text_config", "full_attention_interval"}, 0, {"full_attention_interval"}},
      {{"text_config", "rope_parameters", "partial_rotary_factor"},
       0.07,
       {"partial_rotary_factor", "head_dim 16"}},
      {{"text_config", "rope_parameters", "partial_rotary_factor"}, 1.5, {"partial_rotary_factor"}},
      {{"text_config", "model_type"}, "qwen3_5_moe_text", {"text_config.model_type", "qwen3_5_moe_text"}},
      {{"text_config"}, nullptr, {"text_config"}},
      {{"text_config"}, "text", {"text_config", "object"}},
      {{"model_type"}, "qwen3_5_moe", {"qwen3_5_moe"}},
      {{"architectures"}, Json::array({"Qwen3_5MoeForConditionalGeneration"}), {"Qwen3_5Moe"}},
      {{"architectures"}, Json::array({"Qwen3NextForCausalLM"}), {"Qwen3Next"}},
      {{"quantization_config"}, Json{{"quant_method", "fp8"}}, {"quantization_config"}},
      {{"text_config", "quantization_config"},
       Json{{"quant_method", "fp8"}},
       {"text_config.quantization_config"}},
      {{"image_token_id"}, -1, {"image_token_id"}},
      {{"tie_word_embeddings"}, "yes", {"tie_word_embeddings"}},
  };
  for (const BadKey& bad : keys) {
    Json json = read_json_file(kSharded + "/config.json");
    json["text_config"].erase("full_attention_interval");
    json["text_config"]["layer_types"] = {"linear_attention", "full_attention"};
    Json* at = &json;
    for (const std::string& key : bad.path) at = &(*at)[key];
    if (bad.path.back() == "full_attention_interval") json["text_config"].erase("layer_types");
    *at = bad.value;
    expect_error(Exit::data, bad.words, bad.words.front(), [&] { config_of(json); });
  }
}

/// A copy of a folder with its tensors changed: another name, no name, another shape.
struct Change {
  std::string name, renamed;
  std::vector<int64_t> shape;
  std::vector<std::string> words;
};

TEST(HybridFolder, BrokenTensorsAreRefusedByName) {
  const std::string net = "model.language_model.layers.0.linear_attn.", head = "model.language_model.";
  const Change changes[] = {
      {net + "A_log", "", {}, {net + "A_log", "missing"}},
      {net + "dt_bias", "", {}, {net + "dt_bias", "missing"}},
      {net + "conv1d.weight", net + "conv1d.weight", {32, 4}, {"conv1d.weight", "[32, 4]", "[32, 1, 4]"}},
      {net + "norm.weight", net + "norm.weight", {4, 2}, {"norm.weight", "wrong shape"}},
      {net + "in_proj_qkv.weight", net + "in_proj_qkvz.weight", {}, {"in_proj_qkv.weight", "missing"}},
      {"model.language_model.layers.1.self_attn.q_proj.weight",
       "model.language_model.layers.1.self_attn.q_proj.weight",
       {32, 32},
       {"q_proj.weight", "[32, 32]", "[64, 16]"}},
      {head + "norm.weight", "model.norm.weight", {}, {"two prefixes", "model.norm.weight"}},
      {"mtp.norm.weight", "other.norm.weight", {}, {"other.norm.weight", "does not belong"}},
  };
  const ModelFolder source = ModelFolder::open(kVision);
  for (const Change& change : changes) {
    const TempDir dir;
    fs::copy_file(kVision + "/config.json", dir / "config.json");
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, info] : source.tensors()) {
      std::string raw(static_cast<size_t>(info.end - info.begin), '\0');
      source.read_bytes(name, 0, std::ssize(raw), raw.data());
      TensorToWrite t{name, info.dtype, info.shape, [raw](OutputFile& file) { file.write(raw); }};
      if (name == change.name) {
        if (change.renamed.empty()) continue;
        t.name = change.renamed;
        if (!change.shape.empty()) t.shape = change.shape;
      }
      tensors.push_back(std::move(t));
    }
    write_safetensors(dir / "model.safetensors", tensors);
    expect_error(Exit::data, change.words, change.name, [&] { Loaded(dir.path(), DType::f32); });
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
