// Folders of hybrid models: what is kept comes out as it went in; configs and tensors that mean another model
// are refused by name.

#include <gtest/gtest.h>

#include <algorithm>
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
                  kText = kModels + "text-default", kLongPrefix = kModels + "text-ratio3-long-prefix",
                  kNext = kModels + "next-dense", kNextExperts = kModels + "next-experts-tied",
                  kExperts = kModels + "moe-text", kFused = kModels + "moe-vision-fused",
                  kVisionExperts = kModels + "moe-vision-tied-bf16";

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

/// Vision tower, further predictions, nested config, wide tensors, either prefix, rows by key heads and fused
/// experts among them.
TEST(HybridFolder, ComesOutByteForByte) {
  for (const std::string& source :
       {kVision, kSharded, kText, kLongPrefix, kNext, kNextExperts, kExperts, kFused, kVisionExperts})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const bool narrow = source == kVision || source == kVisionExperts;
      if (dtype == DType::bf16 && !narrow) continue;  // the others are fp32
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
void expect_only_text_changes(const std::string& source, size_t text_tensors) {
  SCOPED_TRACE(source);
  const TempDir dir;
  Loaded model(source, DType::f32);
  for (Parameter& p : model.store.list())
    for (int64_t i = 0; i < p.value.size(); ++i) p.value.as<float>()[i] += 1.0f;
  export_model(source, model.specs, store_reader(model.store), dir / "out", {});
  const ModelFolder before = ModelFolder::open(source), after = ModelFolder::open(dir / "out");
  EXPECT_EQ(before.tensors().size(), after.tensors().size());
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
  EXPECT_GE(same, 3u);
  EXPECT_EQ(other, text_tensors);
}

TEST(HybridFolder, OnlyWhatIsTrainedChanges) {
  expect_only_text_changes(kVision, 27);
  expect_only_text_changes(kNextExperts, 65);
  expect_only_text_changes(kFused, 36);
}

/// The rows of a key head lie together in the files, those of q, k, v, z, b and a in the model.
TEST(HybridFolder, RowsGoByKeyHeadsInTheFiles) {
  const Loaded model(kNext, DType::f32);
  const DeltaConfig& d = model.config.delta;
  const int64_t width = model.config.hidden_size, keys = d.key_heads * d.key_dim, ratio = 2;
  const SafetensorsFile file(kNext + "/model.safetensors", "model.safetensors");
  const auto stored = [&](const char* name) {
    const TensorInfo& info = file.tensors().at(std::string("model.layers.0.linear_attn.") + name);
    std::vector<float> values(static_cast<size_t>(info.num_elements()));
    file.read(info.begin, info.end - info.begin, values.data());
    return values;
  };
  const std::vector<float> qkvz = stored("in_proj_qkvz.weight"), ba = stored("in_proj_ba.weight");
  const auto w_in = std::ranges::find_if(
      model.store.list(), [](const Parameter& p) { return p.spec.name == "layers.0.delta.w_in"; });
  ASSERT_NE(w_in, model.store.list().end());
  const auto expect_row = [&](int64_t row, const std::vector<float>& from, int64_t stored_row) {
    EXPECT_EQ(std::memcmp(w_in->value.as<float>() + row * width, from.data() + stored_row * width,
                          static_cast<size_t>(width) * sizeof(float)),
              0)
        << row << " is not " << stored_row;
  };
  const int64_t of_head = 2 * d.key_dim + 2 * ratio * d.value_dim, v = 2 * keys,
                z = v + d.value_heads * d.value_dim, b = z + d.value_heads * d.value_dim;
  expect_row(0, qkvz, 0);
  expect_row(d.key_dim + 3, qkvz, of_head + 3);                                  // q of head 1
  expect_row(keys + 1, qkvz, d.key_dim + 1);                                     // k of head 0
  expect_row(v + ratio * d.value_dim + 5, qkvz, of_head + 2 * d.key_dim + 5);    // v of value head 2
  expect_row(z + d.value_dim, qkvz, 2 * d.key_dim + (ratio + 1) * d.value_dim);  // z of value head 1
  expect_row(b + ratio, ba, 2 * ratio);                                          // b of value head 2
  expect_row(b + d.value_heads + ratio + 1, ba, 2 * ratio + ratio + 1);          // a of value head 3
}

/// Random weights are written as they are published.
TEST(HybridFolder, InitWritesWhatImportReads) {
  for (const std::string& source : {kNextExperts, kVisionExperts}) {
    const TempDir dir;
    init_model_folder(source + "/config.json", dir / "out", parameter_specs, {.seed = 3});
    const Loaded model(dir / "out", DType::f32);
    const ModelFolder plain = ModelFolder::open(dir / "out");
    EXPECT_EQ(plain.tensors().contains("model.layers.0.linear_attn.in_proj_qkvz.weight"),
              source == kNextExperts);
    EXPECT_EQ(plain.tensors().contains("model.layers.0.linear_attn.in_proj_qkv.weight"), false);
    export_model(dir / "out", model.specs, store_reader(model.store), dir / "again", {.dtype = "auto"});
    EXPECT_EQ(bytes_of(dir / "out/model.safetensors") == bytes_of(dir / "again/model.safetensors"), true);
  }
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
  EXPECT_EQ(c.media_token_ids, (std::vector<int64_t>{248056, 248057}));
}

int64_t parameters_of(const char* architecture, const char* model_type, const Json& text) {
  Json json{{"architectures", {architecture}}, {"model_type", model_type}};
  if (text.is_object()) json["text_config"] = text;
  int64_t parameters = 0;
  for (const ParamSpec& spec : parameter_specs(config_of(json))) parameters += spec.size();
  return parameters;
}

/// What transformers assumes are the models of 35B with 3B active, and of 80B.
TEST(HybridConfig, DefaultsOfModelsWithExperts) {
  EXPECT_EQ(parameters_of("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", Json::object()),
            34'660'610'688);
  EXPECT_EQ(parameters_of("Qwen3NextForCausalLM", "qwen3_next", nullptr), 79'674'391'296);
  const ModelConfig next =
      config_of({{"architectures", {"Qwen3NextForCausalLM"}}, {"model_type", "qwen3_next"}});
  EXPECT_TRUE(next.moe.normalizes);
  EXPECT_EQ(next.moe.layers.size(), 48u);
  EXPECT_EQ(next.moe.experts_per_token, 10);
  EXPECT_EQ(next.rotated_dim, 64);
  EXPECT_EQ(next.tensor_prefix, "model.");
  // Keys that the family does not have make no layer dense, and leave no weight as it is.
  const ModelConfig moe = config_of({{"architectures", {"Qwen3_5MoeForCausalLM"}},
                                     {"model_type", "qwen3_5_moe_text"},
                                     {"mlp_only_layers", {0}},
                                     {"norm_topk_prob", false}});
  EXPECT_TRUE(moe.moe.normalizes);
  EXPECT_EQ(moe.moe.layers.size(), 40u);
  const ModelConfig some = config_of({{"architectures", {"Qwen3NextForCausalLM"}},
                                      {"model_type", "qwen3_next"},
                                      {"decoder_sparse_step", 2},
                                      {"mlp_only_layers", {1}}});
  EXPECT_EQ(some.moe.layers.size(), 23u);
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
      {{"video_token_id"}, 1.5, {"video_token_id"}},
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

TEST(HybridConfig, NoExpertsWhereAllLayersHaveThem) {
  Json json = read_json_file(kFused + "/config.json");
  json["text_config"]["num_experts"] = 0;
  expect_error(Exit::data, {"text_config.num_experts", "all layers of this family have experts"}, "none",
               [&] { config_of(json); });
  json["text_config"].erase("num_experts");
  json["text_config"]["model_type"] = "qwen3_5_text";
  expect_error(Exit::data, {"text_config.model_type", "qwen3_5_moe_text"}, "other text model",
               [&] { config_of(json); });
}

/// A copy of a folder with its tensors changed: another name, no name, another shape or type.
struct Change {
  std::string name, renamed;
  std::vector<int64_t> shape;
  std::vector<std::string> words;
  std::string dtype = {};
};

void expect_refused(const std::string& folder, const std::vector<Change>& changes) {
  const ModelFolder source = ModelFolder::open(folder);
  for (const Change& change : changes) {
    SCOPED_TRACE(change.name);
    ASSERT_TRUE(source.tensors().contains(change.name));
    const TempDir dir;
    fs::copy_file(folder + "/config.json", dir / "config.json");
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, info] : source.tensors()) {
      std::string raw(static_cast<size_t>(info.end - info.begin), '\0');
      source.read_bytes(name, 0, std::ssize(raw), raw.data());
      TensorToWrite t{name, info.dtype, info.shape, [raw](OutputFile& file) { file.write(raw); }};
      if (name == change.name) {
        if (change.renamed.empty()) continue;
        if (change.renamed.ends_with("+")) {  // beside it
          tensors.push_back(t);
          t.name = change.renamed.substr(0, change.renamed.size() - 1);
        } else {
          t.name = change.renamed;
        }
        if (!change.shape.empty()) t.shape = change.shape;
        if (!change.dtype.empty()) t.dtype = change.dtype;
      }
      tensors.push_back(std::move(t));
    }
    write_safetensors(dir / "model.safetensors", tensors);
    expect_error(Exit::data, change.words, change.name, [&] { Loaded(dir.path(), DType::f32); });
  }
}

TEST(HybridFolder, BrokenTensorsAreRefusedByName) {
  const std::string net = "model.language_model.layers.0.linear_attn.", head = "model.language_model.";
  const std::vector<Change> changes = {
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
      {net + "A_log", net + "A_log", {}, {"A_log", "unsupported type", "I32"}, "I32"},
      {net + "in_proj_z.weight", "", {}, {"in_proj_z.weight", "missing", "[16, 16]"}},
      {net + "in_proj_b.weight", "", {}, {"in_proj_b.weight", "missing"}},
      {net + "in_proj_a.weight", net + "in_proj_a.weight", {1, 32}, {"in_proj_a.weight", "[1, 32]"}},
      {net + "out_proj.weight", net + "out.weight", {}, {"out_proj.weight", "missing"}},
      {net + "conv1d.weight", net + "conv1d.bias+", {}, {"conv1d.bias", "does not belong"}},
      {head + "layers.1.self_attn.q_norm.weight", "", {}, {"q_norm.weight", "missing"}},
      {head + "embed_tokens.weight", "model.embed_tokens.weight+", {}, {"two prefixes"}},
  };
  expect_refused(kVision, changes);
}

TEST(HybridFolder, BrokenInputsByKeyHeadsAreRefusedByName) {
  const std::string net = "model.layers.0.linear_attn.", qkvz = net + "in_proj_qkvz.weight",
                    ba = net + "in_proj_ba.weight";
  expect_refused(kNext, {
                            {qkvz, "", {}, {qkvz, "missing", "[96, 16]"}},
                            {ba, "", {}, {ba, "missing", "[8, 16]"}},
                            {qkvz, net + "in_proj_qkv.weight", {}, {qkvz, "missing"}},
                            {qkvz, qkvz, {16, 96}, {qkvz, "wrong shape", "[16, 96]", "[96, 16]"}},
                            {ba, ba, {2, 4, 16}, {ba, "wrong shape"}},
                            {qkvz, qkvz, {}, {qkvz, "unsupported type", "I32"}, "I32"},
                            {qkvz, net + "in_proj_qkv.weight+", {}, {"in_proj_qkv.weight", "twice", qkvz}},
                        });
}

TEST(HybridFolder, BrokenExpertsAreRefusedByName) {
  const std::string moe = "model.language_model.layers.1.mlp.", gate_up = moe + "experts.gate_up_proj",
                    down = moe + "experts.down_proj";
  expect_refused(kFused,
                 {
                     {down, "", {}, {down, "missing", "fused in both"}},
                     {gate_up, gate_up, {4, 16, 16, 1}, {gate_up, "wrong shape", "[4, 16, 16]"}},
                     {down, down, {4, 8, 16}, {down, "inputs x outputs are not read"}},
                     {gate_up, gate_up, {}, {gate_up, "unsupported type"}, "I32"},
                     {moe + "gate.weight", "", {}, {moe + "gate.weight", "missing"}},
                     {moe + "shared_expert_gate.weight", "", {}, {"shared_expert_gate.weight", "missing"}},
                     {moe + "shared_expert.up_proj.weight", "", {}, {"shared_expert.up_proj", "missing"}},
                 });
  const std::string single = "model.layers.1.mlp.experts.3.up_proj.weight";
  expect_refused(kExperts,
                 {{single, "", {}, {single, "missing", "[8, 16]"}},
                  {single, "model.layers.1.mlp.experts.4.up_proj.weight+", {}, {"experts.4.up_proj"}}});
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
