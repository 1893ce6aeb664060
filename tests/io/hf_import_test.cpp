#include "src/io/hf/hf_import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "src/core/file.h"
#include "src/io/elements.h"
#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_export.h"
#include "src/models/parameter_specs.h"
#include "src/nn/init.h"
#include "tests/support/expect_error.h"
#include "tests/support/real_data.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

const char* const kFolders[] = {"tests/golden/io/llama-v4", "tests/golden/io/qwen2-sharded",
                                "tests/golden/io/qwen3-extra"};

ModelConfig config_of(const ModelFolder& folder) {
  return parse_model_config(folder.config(), nullptr, folder.config_path());
}

void fill(ParameterStore& store, const ModelConfig& config, DType dtype) {
  for (ParamSpec& spec : parameter_specs(config)) store.add(std::move(spec));
  store.allocate(dtype, false);
}

/// Values of a Hugging Face tensor, taken from where the store keeps its rows.
std::vector<double> part_values(const ParameterStore& store, const std::string& name) {
  for (const Parameter& p : store.list()) {
    int64_t row = 0;
    for (const HfPart& part : p.spec.parts) {
      const int64_t width = p.spec.size() / p.spec.shape[0];
      if (part.name == name) {
        std::vector<double> values(static_cast<size_t>(part.rows * width));
        const Tensor view = rows(p.value, row, row + part.rows);
        convert_elements(values.data(), DType::f64, view.raw(), view.dtype, view.size());
        return values;
      }
      row += part.rows;
    }
  }
  return {};
}

/// What a file value becomes in storage.
double stored(double value, DType dtype) {
  if (dtype == DType::f64) return value;
  const float x = static_cast<float>(value);
  return dtype == DType::bf16 ? static_cast<double>(static_cast<float>(bf16(x))) : static_cast<double>(x);
}

TEST(HfImport, EveryTensorLandsWhereItBelongs) {
  for (const char* path : kFolders)
    for (DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      const ModelFolder folder = ModelFolder::open(path);
      EXPECT_TRUE(folder.warnings().empty());
      const ModelConfig config = config_of(folder);
      ParameterStore store;
      fill(store, config, dtype);
      import_weights(folder, config, store);
      int matched = 0;
      const Json all_expected = read_json_file(join_path(path, "expected.json"));
      for (const auto& [name, expected] : all_expected.items()) {
        if (is_kept_tensor(name, config)) continue;
        ++matched;
        const std::vector<double> values = part_values(store, name);
        double sum = 0;
        for (double v : values) sum += v;
        if (dtype != DType::bf16) {
          EXPECT_NEAR(sum, expected["sum"].get<double>(), 1e-11) << name;
        }
        for (size_t i = 0; i < 3; ++i)
          EXPECT_EQ(values.at(expected["at"][i].get<size_t>()),
                    stored(expected["value"][i].get<double>(), dtype))
              << name;
      }
      EXPECT_GE(matched, 20) << path;
    }
}

TEST(HfImport, KeptTensorsAreRotaryTablesAndLayersBeyondTheLast) {
  ModelConfig config;
  config.num_layers = 2;
  EXPECT_TRUE(is_kept_tensor("model.layers.2.eh_proj.weight", config));
  EXPECT_TRUE(is_kept_tensor("model.layers.61.x", config));
  EXPECT_TRUE(is_kept_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", config));
  for (const char* name : {"model.layers.1.x", "model.layers.2", "model.layers.-3.x", "model.layers.2x.y",
                           "model.layers.99999999999.x", "model.layers..x", "model.norm.weight"})
    EXPECT_FALSE(is_kept_tensor(name, config)) << name;
}

/// A folder with one vocabulary of 4 x 2 and no layer to speak of, its tensors given one by one.
class TinyFolder {
 public:
  TinyFolder() {
    config_ = {{"model_type", "llama"},        {"vocab_size", 4},        {"hidden_size", 2},
               {"intermediate_size", 1},       {"num_hidden_layers", 1}, {"num_attention_heads", 1},
               {"num_key_value_heads", 1},     {"rope_theta", 1e4},      {"eos_token_id", 1},
               {"max_position_embeddings", 8}, {"rms_norm_eps", 1e-6},   {"tie_word_embeddings", true}};
    for (const ParamSpec& spec : parameter_specs(parse_model_config(config_, nullptr, "test")))
      for (const HfPart& part : spec.parts) set(part.name, DType::f32, part_shape(spec, part), 0.5);
  }
  void set(const std::string& name, DType dtype, std::vector<int64_t> shape, double value) {
    TensorToWrite t{name, safetensors_name(dtype), std::move(shape), {}};
    std::vector<double> values(static_cast<size_t>(t.num_elements()), value);
    set_values(std::move(t), dtype, values);
  }
  void set_values(TensorToWrite t, DType dtype, const std::vector<double>& values) {
    std::vector<char> raw(values.size() * static_cast<size_t>(dtype_size(dtype)));
    convert_elements(raw.data(), dtype, values.data(), DType::f64, static_cast<int64_t>(values.size()));
    t.write = [raw](OutputFile& file) { file.write(raw.data(), static_cast<int64_t>(raw.size())); };
    const std::string name = t.name;
    tensors_[name] = std::move(t);
  }
  void import(ParameterStore& store, DType dtype) {
    std::filesystem::remove(dir_ / "model.safetensors");
    std::vector<TensorToWrite> list;
    for (const auto& [name, t] : tensors_) list.push_back(t);
    write_file_atomic(dir_ / "config.json", config_.dump());
    write_safetensors(dir_ / "model.safetensors", list);
    const ModelFolder folder = ModelFolder::open(dir_.path());
    fill(store, config_of(folder), dtype);
    import_weights(folder, config_of(folder), store);
  }
  void expect_refused(DType dtype, const std::vector<std::string>& words) {
    ParameterStore store;
    expect_error(Exit::data, words, words.front(), [&] { import(store, dtype); });
  }

 private:
  TempDir dir_;
  Json config_;
  std::map<std::string, TensorToWrite> tensors_;
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr const char* kGate = "model.layers.0.mlp.gate_proj.weight";

TEST(HfImport, ReadsEveryFloatTypeIntoEveryStorage) {
  for (DType file : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (DType storage : {DType::f32, DType::bf16, DType::f64}) {
      TinyFolder folder;
      folder.set(kGate, file, {1, 2}, -1.25);
      ParameterStore store;
      folder.import(store, storage);
      EXPECT_EQ(part_values(store, kGate), (std::vector<double>{-1.25, -1.25}));
    }
}

TEST(HfImport, NonFiniteWeightsAreRefusedWithTheirIndex) {
  for (double bad : {kNan, kInf, -kInf}) {
    TinyFolder folder;
    folder.set_values({"model.embed_tokens.weight", "BF16", {4, 2}, {}}, DType::bf16,
                      {1, 2, 3, 4, 5, bad, 7, 8});
    folder.expect_refused(DType::f32, {"model.embed_tokens.weight", "[2, 1]"});
    folder.expect_refused(DType::bf16, {"model.embed_tokens.weight", "[2, 1]"});
    folder.expect_refused(DType::f64, {"model.embed_tokens.weight", "[2, 1]"});
  }
  TinyFolder large;
  large.set(kGate, DType::f64, {1, 2}, 1e300);
  large.expect_refused(DType::f32, {kGate, "[0, 0]", "1e+300", "fp32"});
  large.set(kGate, DType::f32, {1, 2}, 3.4e38);
  large.expect_refused(DType::bf16, {kGate, "bf16"});
}

TEST(HfImport, CopyOfATiedHeadMustEqualTheEmbedding) {
  TinyFolder folder;
  folder.set("lm_head.weight", DType::f32, {4, 2}, 0.5);
  ParameterStore store, other;
  folder.import(store, DType::f32);
  folder.set("lm_head.weight", DType::bf16, {4, 2}, 0.5);  // equal values of another type
  folder.import(other, DType::f32);
  folder.set_values({"lm_head.weight", "F32", {4, 2}, {}}, DType::f32, {.5, .5, .5, .5, .5, .5, .5, .25});
  folder.expect_refused(DType::f32, {"lm_head.weight", "[3, 1]", "0.25", "tie_word_embeddings"});
  folder.set("lm_head.weight", DType::f32, {2, 4}, 0.5);
  folder.expect_refused(DType::f32, {"lm_head.weight", "[2, 4]"});
}

TEST(HfImport, MissingMisshapedAndUnknownTensorsAreRefusedByName) {
  TinyFolder shape;
  shape.set(kGate, DType::f32, {2, 1}, 1);
  shape.expect_refused(DType::f32, {kGate, "[2, 1]", "[1, 2]"});
  TinyFolder extra;
  extra.set("model.layers.0.mlp.gate_proj.bias", DType::f32, {1}, 1);
  extra.expect_refused(DType::f32, {"model.layers.0.mlp.gate_proj.bias", "does not belong"});
  TinyFolder quantised;
  quantised.set_values({kGate, "I32", {1, 2}, {}}, DType::f32, {1, 2});
  quantised.expect_refused(DType::f32, {kGate, "I32"});
}

std::string digest_of(const std::string& path, DType dtype) {
  const ModelFolder folder = ModelFolder::open(path);
  const ModelConfig config = config_of(folder);
  ParameterStore store;
  fill(store, config, dtype);
  return import_weights(folder, config, store).digest;
}

/// The digest is that of the stored values: neither the type that they are loaded as nor how they lie in
/// files changes it, one bit of one weight does.
TEST(HfImport, TheDigestIsThatOfTheStoredTensors) {
  const TempDir dir;
  for (const char* path : kFolders) {
    const std::string digest = digest_of(path, DType::f32);
    EXPECT_EQ(digest.size(), 32u);
    EXPECT_EQ(digest_of(path, DType::bf16), digest) << path;
    EXPECT_EQ(digest_of(path, DType::f64), digest) << path;
  }
  EXPECT_NE(digest_of(kFolders[0], DType::f32), digest_of(kFolders[1], DType::f32));
  const std::string whole = dir / "whole", cut = dir / "cut";
  const ModelFolder source = ModelFolder::open(kFolders[1]);
  const ModelConfig config = config_of(source);
  ParameterStore store;
  fill(store, config, DType::f32);
  import_weights(source, config, store);
  export_model(kFolders[1], parameter_specs(config), store_reader(store), whole, {});
  export_model(kFolders[1], parameter_specs(config), store_reader(store), cut, {.shard_bytes = 4096});
  ASSERT_GT(ModelFolder::open(cut).files().size(), 1u);
  const std::string digest = digest_of(whole, DType::f32);
  EXPECT_EQ(digest_of(cut, DType::f32), digest);
  const std::string file = join_path(whole, ModelFolder::open(whole).files().front());
  std::string bytes = read_file(file, int64_t{1} << 30);
  bytes[bytes.size() - 4] ^= 1;  // of the fraction of the last value
  write_file_atomic(file, bytes);
  EXPECT_NE(digest_of(whole, DType::f32), digest);
}

/// Ranks whose weights are never whole have their shards of the values that others load.
TEST(HfImport, FillsShardsUnitByUnit) {
  for (const char* path : kFolders)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool random : {false, true}) {
        const ModelFolder folder = ModelFolder::open(path);
        const ModelConfig config = config_of(folder);
        const auto load = [&](ParameterStore& store, const UnitShards& shards) {
          for (ParamSpec& spec : parameter_specs(config)) store.add(std::move(spec));
          store.allocate(dtype, false, Device::cpu, shards);
          if (random)
            random_init(store, config, 7);
          else
            import_weights(folder, config, store);
        };
        ParameterStore whole;
        load(whole, {});
        for (int rank = 0; rank < 3; ++rank) {
          const UnitShards shards{rank, 3, /*of_values=*/true, /*never_whole=*/true};
          ParameterStore store;
          load(store, shards);
          EXPECT_EQ(store.value_bytes(), 0);
          for (const Unit& unit : whole.units()) {
            const FlatRange own = shards.own(unit);
            const CTensor want = rows(whole.values_of(unit), own.begin, own.end),
                          got = store.own_values(unit.range.begin + own.begin, own.size());
            ASSERT_EQ(got.bytes(), want.bytes());
            EXPECT_EQ(std::memcmp(got.data, want.data, static_cast<size_t>(want.bytes())), 0)
                << path << ", " << unit.name << ", rank " << rank;
          }
        }
      }
}

TEST(HfImport, LoadsThePublishedTinyModel) {
  const std::string path = real_data("models/tinyzero");
  if (!path_exists(path)) GTEST_SKIP() << how_to_get(path);
  const ModelFolder folder = ModelFolder::open(path);
  const ModelConfig config = config_of(folder);
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.pad_token_id, 2);
  ParameterStore store;
  fill(store, config, DType::f32);
  import_weights(folder, config, store);
  EXPECT_EQ(store.num_parameters() * 2 + 8 + 4112, 1595672);
}

TEST(RandomInit, IsAFunctionOfSeedParameterAndElementOnly) {
  const ModelFolder folder = ModelFolder::open(kFolders[1]);
  ModelConfig config = config_of(folder);
  config.pad_token_id = 3;
  ParameterStore wide, narrow, other;
  fill(wide, config, DType::f64);
  fill(narrow, config, DType::bf16);
  fill(other, config, DType::f64);
  random_init(wide, config, 5);
  random_init(narrow, config, 5);
  random_init(other, config, 6);
  int64_t index = 0, normal = 0, same = 0;
  double sum = 0, squares = 0;
  for (size_t k = 0; k < wide.list().size(); ++k, ++index) {
    const ParamSpec& spec = wide.list()[k].spec;
    const double* values = wide.list()[k].value.as<double>();
    std::vector<float> one(1);
    for (int64_t i = 0; i < spec.size(); ++i) {
      random_values(spec, index, config, 5, {i, i + 1}, one.data());
      ASSERT_EQ(values[i], static_cast<double>(one[0])) << spec.name;
      ASSERT_EQ(narrow.list()[k].value.as<bf16>()[i].bits, bf16(one[0]).bits) << spec.name;
      const bool padding = spec.name == "embed" && i / spec.shape[1] == 3;
      if (spec.init != Init::normal || padding) {
        ASSERT_EQ(values[i], spec.init == Init::ones ? 1.0 : 0.0) << spec.name;
        continue;
      }
      ++normal;
      sum += values[i];
      squares += values[i] * values[i];
      same += other.list()[k].value.as<double>()[i] == values[i];
    }
  }
  const double n = static_cast<double>(normal);
  EXPECT_GT(normal, 4000);
  EXPECT_LT(std::abs(sum / n), 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 0.0004, 5 * 0.0004 * std::sqrt(2 / n));
  EXPECT_LE(same, 1);
}

TEST(RandomInit, ValuesAreNormal) {
  ModelConfig config;
  config.initializer_range = 1.0;
  const ParamSpec spec{.name = "w", .parts = {{"w", 1000}}, .shape = {1000, 1000}, .init = Init::normal};
  std::vector<float> values(1000000);
  random_values(spec, 3, config, 42, {0, 1000000}, values.data());
  double moments[5] = {}, neighbours = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    moments[1] += x / 1e6;
    moments[2] += x * x / 1e6;
    moments[3] += x * x * x / 1e6;
    moments[4] += x * x * x * x / 1e6;
    if (i > 0) neighbours += x * values[i - 1] / 1e6;
  }
  EXPECT_NEAR(moments[1], 0, 5e-3);
  EXPECT_NEAR(moments[2], 1, 7.1e-3);
  EXPECT_NEAR(moments[3], 0, 2e-2);
  EXPECT_NEAR(moments[4], 3, 5e-2);
  EXPECT_NEAR(neighbours, 0, 5e-3);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
