#include "src/io/hf/hf_export.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <set>

#include "src/io/elements.h"
#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_import.h"
#include "src/models/parameter_specs.h"
#include "src/nn/init.h"
#include "tests/support/expect_error.h"
#include "tests/support/real_data.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

const std::string kLlama = "tests/golden/io/llama-v4";
const std::string kQwen2 = "tests/golden/io/qwen2-sharded";
const std::string kQwen3 = "tests/golden/io/qwen3-extra";
const std::string kTinyZero = real_data("models/tinyzero");

std::string bytes_of(const std::string& path) { return read_file(path, 100 << 20); }

struct Loaded {
  explicit Loaded(const std::string& path, DType dtype = DType::f32) : folder(ModelFolder::open(path)) {
    config = parse_model_config(folder.config(), nullptr, folder.config_path());
    specs = parameter_specs(config);
    for (const ParamSpec& spec : specs) store.add(spec);
    store.allocate(dtype, false);
    import_weights(folder, config, store);
  }
  void write(const std::string& out, const ExportOptions& options = {}) const {
    export_model(folder.path(), specs, store_reader(store), out, options);
  }
  ModelFolder folder;
  ModelConfig config;
  std::vector<ParamSpec> specs;
  ParameterStore store;
};

std::string tensor_bytes(const ModelFolder& folder, const std::string& name) {
  const TensorInfo& info = folder.tensors().at(name);
  std::string raw(static_cast<size_t>(info.end - info.begin), '\0');
  folder.read_bytes(name, 0, info.end - info.begin, raw.data());
  return raw;
}

void expect_round_trip(const std::string& source, DType storage) {
  const TempDir dir;
  const Loaded model(source, storage);
  model.write(dir / "out");
  for (const std::string& name : list_directory(source)) {
    if (name == "config.json" || name == "expected.json") continue;
    EXPECT_EQ(bytes_of(join_path(source, name)) == bytes_of(dir / ("out/" + name)), true)
        << source << " " << name;
  }
  const Loaded again(dir / "out", storage);
  EXPECT_EQ(again.folder.tensors().size(), model.folder.tensors().size());
  EXPECT_EQ(std::memcmp(again.store.flat_values().data, model.store.flat_values().data,
                        static_cast<size_t>(model.store.flat_values().bytes())),
            0);
  EXPECT_FALSE(path_exists(dir / "out.tmp"));
}

TEST(HfExport, UntouchedFoldersComeOutByteForByte) {
  for (const std::string& source : {kLlama, kQwen2, kQwen3}) {
    expect_round_trip(source, DType::f32);
    expect_round_trip(source, DType::f64);
  }
  expect_round_trip(kLlama, DType::bf16);
}

TEST(HfExport, ThePublishedTinyModelComesOutByteForByte) {
  if (!path_exists(kTinyZero)) GTEST_SKIP() << how_to_get(kTinyZero);
  expect_round_trip(kTinyZero, DType::f32);
  expect_round_trip(kTinyZero, DType::bf16);
}

TEST(HfExport, ConfigKeepsItsKeysAndGainsTheOtherSpelling) {
  const TempDir dir;
  Loaded(kLlama).write(dir / "out");
  const Json source = read_json_file(kLlama + "/config.json"), out = read_json_file(dir / "out/config.json");
  for (const auto& [key, value] : source.items()) EXPECT_EQ(out[key], value) << key;
  EXPECT_EQ(out["rope_parameters"]["rope_type"], "llama3");
  EXPECT_EQ(out["rope_parameters"]["rope_theta"], 500000.0);
  EXPECT_EQ(out["dtype"], "bfloat16");
  EXPECT_TRUE(out.contains("an_unknown_key"));
}

/// What the user allows to be left over stays as it is, whatever becomes of the weights.
TEST(HfExport, TensorsThatMayBeUnusedAreKept) {
  const TempDir dir;
  const Loaded model(kLlama);
  const std::string source = dir / "source";
  fs::copy(kLlama, source);
  fs::remove(join_path(source, "model.safetensors"));
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, info] : model.folder.tensors()) {
    const std::string raw = tensor_bytes(model.folder, name);
    tensors.push_back({name, info.dtype, info.shape, [raw](OutputFile& file) { file.write(raw); }});
  }
  tensors.push_back({"visual.blocks.0.scale", "I16", {2}, [](OutputFile& file) { file.write("abcd"); }});
  write_safetensors(join_path(source, "model.safetensors"), tensors);

  ModelFolder folder = ModelFolder::open(source);
  const auto check = [&] { return check_weights(folder, model.config, model.specs); };
  const std::vector<std::string> words = {"visual.blocks.0.scale", "does not belong", "model.allow_unused"};
  expect_error(Exit::data, words, "none allowed", check);
  folder.allow_unused({"visual", "*.0.scales"});
  expect_error(Exit::data, words, "others allowed", check);
  folder.allow_unused({"lm_head.weight", "visual.*"});
  EXPECT_EQ(check(), std::vector<std::string>{"visual.blocks.0.scale"});

  const ElementReader read = store_reader(model.store);
  expect_error(Exit::data, words, "export", [&] { export_model(source, model.specs, read, dir / "no", {}); });
  export_model(source, model.specs, read, dir / "out", {.allow_unused = {"visual.*"}});
  EXPECT_EQ(tensor_bytes(ModelFolder::open(dir / "out"), "visual.blocks.0.scale"), "abcd");
  EXPECT_EQ(ModelFolder::open(dir / "out").tensors().size(), tensors.size());
}

TEST(HfExport, ShardsAreFilledUpToTheirSize) {
  const TempDir dir;
  const Loaded model(kLlama);
  ExportOptions options;
  options.shard_bytes = 800;  // the largest tensors have 1024 bytes
  model.write(dir / "out", options);
  const ModelFolder out = ModelFolder::open(dir / "out");
  ASSERT_GT(out.files().size(), 5u);
  EXPECT_EQ(out.files().front(), fmt::format("model-00001-of-{:05}.safetensors", out.files().size()));
  std::map<std::string, std::pair<int64_t, int>> load;
  int64_t total = 0;
  for (const auto& [name, info] : out.tensors()) {
    load[info.file].first += info.end - info.begin;
    load[info.file].second += 1;
    total += info.end - info.begin;
    EXPECT_EQ(tensor_bytes(out, name), tensor_bytes(model.folder, name)) << name;
  }
  for (const auto& [file, sum] : load) EXPECT_TRUE(sum.first <= 800 || sum.second == 1) << file;
  const Json index = read_json_file(dir / "out/model.safetensors.index.json");
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["metadata"]["total_parameters"], model.store.num_parameters());
  options.shard_bytes = 0;
  expect_error(Exit::usage, {"shard-size"}, "shard size", [&] { model.write(dir / "no", options); });
}

TEST(HfExport, OtherTypesAreRoundedAndNamedInTheConfig) {
  const TempDir dir;
  const Loaded model(kQwen2);
  for (const char* name : {"fp32", "bf16", "fp16", "fp64"}) {
    const std::string folder = dir / name;
    model.write(folder, {.dtype = name});
    const ModelFolder out = ModelFolder::open(folder);
    const DType type = parse_dtype_option(name);
    for (const auto& [tensor, info] : out.tensors()) {
      EXPECT_EQ(info.dtype, safetensors_name(type));
      const std::string source = tensor_bytes(model.folder, tensor);
      std::string wanted(static_cast<size_t>(info.end - info.begin), '\0');
      convert_elements(wanted.data(), type, source.data(), DType::f32, info.num_elements());
      EXPECT_EQ(tensor_bytes(out, tensor), wanted) << tensor;
    }
    EXPECT_EQ(read_json_file(folder + "/config.json")["torch_dtype"], torch_name(type));
    EXPECT_EQ(read_json_file(folder + "/config.json")["dtype"], torch_name(type));
  }
  expect_error(Exit::usage, {"int8"}, "dtype", [&] { model.write(dir / "no", {.dtype = "int8"}); });
}

TEST(HfExport, ValuesThatDoNotFitTheTypeAreRefusedAndNothingIsLeft) {
  const TempDir dir;
  Loaded model(kLlama);
  model.store.list().back().value.as<float>()[5] = 1e6f;
  expect_error(Exit::data, {"lm_head.weight", "fp16", "element 5"}, "range",
               [&] { model.write(dir / "out", {.dtype = "fp16"}); });
  model.store.list().back().value.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  expect_error(Exit::data, {"lm_head.weight", "element 5"}, "nan", [&] { model.write(dir / "out"); });
  EXPECT_TRUE(list_directory(dir.path()).empty());
}

TEST(HfExport, TargetMustBeNewOrEmpty) {
  const TempDir dir;
  const Loaded model(kLlama);
  make_directories(dir / "empty");
  make_directories(dir / "empty.tmp.1-0/left/over");
  for (const char* others : {"empty.tmp/mine", "empty.tmp.old/mine"}) make_directories(dir / others);
  model.write(dir / "empty/");
  EXPECT_TRUE(path_exists(dir / "empty/model.safetensors"));
  EXPECT_FALSE(path_exists(dir / "empty.tmp.1-0"));
  EXPECT_TRUE(path_exists(dir / "empty.tmp/mine") && path_exists(dir / "empty.tmp.old/mine"));
  expect_error(Exit::usage, {"not empty"}, "full", [&] { model.write(dir / "empty"); });
  write_file_atomic(dir / "file", "x");
  expect_error(Exit::usage, {"file"}, "file", [&] { model.write(dir / "file"); });
  expect_error(Exit::usage, {"empty"}, "no name", [&] { model.write(""); });
}

/// The second writer is done while the first one is at work.
TEST(HfExport, OneOfTwoWritersWins) {
  const TempDir dir;
  const Loaded model(kLlama);
  const ElementReader read = store_reader(model.store);
  bool other_is_done = false;
  make_directories(dir / "out.tmp.1-0");  // of a killed one
  expect_error(Exit::busy, {dir / "out", "meanwhile"}, "the slower one", [&] {
    export_model(kLlama, model.specs,
                 [&](const ParamSpec& spec, int64_t first, int64_t count, const Tensor& to) {
                   if (!std::exchange(other_is_done, true)) model.write(dir / "out");
                   read(spec, first, count, to);
                 },
                 dir / "out", {});
  });
  EXPECT_EQ(list_directory(dir.path()), std::vector<std::string>{"out"}) << "nothing stays beside it";
  EXPECT_NO_THROW(Loaded{dir / "out"});
}

TEST(HfExport, ACopyOfATiedHeadIsNotWritten) {
  const TempDir dir;
  const Loaded model(kQwen2);
  make_directories(dir / "in");
  write_file_atomic(dir / "in/config.json", bytes_of(kQwen2 + "/config.json"));
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, info] : model.folder.tensors()) {
    const auto write = [raw = tensor_bytes(model.folder, name)](OutputFile& f) { f.write(raw); };
    tensors.push_back({name, info.dtype, info.shape, write});
    if (name == "model.embed_tokens.weight")
      tensors.push_back({"lm_head.weight", info.dtype, info.shape, write});
  }
  write_safetensors(dir / "in/model.safetensors", tensors);
  const Loaded copy(dir / "in");
  EXPECT_TRUE(copy.folder.tensors().contains("lm_head.weight"));
  copy.write(dir / "out");
  EXPECT_FALSE(ModelFolder::open(dir / "out").tensors().contains("lm_head.weight"));
}

TEST(HfExport, ReaderSeesWindowsOfBoundedSize) {
  const TempDir dir;
  const Json config = {
      {"model_type", "llama"},        {"vocab_size", 50000},    {"hidden_size", 64},
      {"intermediate_size", 8},       {"num_hidden_layers", 1}, {"num_attention_heads", 1},
      {"num_key_value_heads", 1},     {"rope_theta", 1e4},      {"tie_word_embeddings", true},
      {"max_position_embeddings", 8}, {"rms_norm_eps", 1e-6},   {"torch_dtype", "bfloat16"}};
  write_file_atomic(dir / "config.json", config.dump());
  const std::vector<ParamSpec> specs = parameter_specs(parse_model_config(config, nullptr, "c"));
  int64_t largest = 0, calls = 0;
  const ElementReader read = [&](const ParamSpec&, int64_t first, int64_t count, const Tensor& destination) {
    largest = std::max(largest, destination.bytes());
    ++calls;
    for (int64_t i = 0; i < count; ++i) destination.as<float>()[i] = static_cast<float>((first + i) % 256);
  };
  export_model(dir.path(), specs, read, dir / "out", {});
  EXPECT_LE(largest, 16 << 20);
  EXPECT_GT(calls, static_cast<int64_t>(specs.size()));
  const ModelFolder out = ModelFolder::open(dir / "out");
  EXPECT_EQ(out.tensors().at("model.norm.weight").dtype, "BF16");
  uint16_t last = 0;
  out.read("model.embed_tokens.weight", 50000 * 64 - 1, 1, &last);
  EXPECT_EQ(last, bf16(255.0f).bits);
}

TEST(InitModelFolder, WritesTheSameWeightsAsRandomInit) {
  const TempDir dir;
  const auto specs_of = [](const ModelConfig& c) { return parameter_specs(c); };
  init_model_folder(kQwen3 + "/config.json", dir / "a", specs_of, {.seed = 11, .tokenizer_folder = kQwen2});
  init_model_folder(kQwen3 + "/config.json", dir / "b", specs_of,
                    {.seed = 11, .dtype = "fp32", .threads = 3});
  EXPECT_EQ(bytes_of(dir / "a/chat_template.jinja"), bytes_of(kQwen2 + "/chat_template.jinja"));
  EXPECT_FALSE(path_exists(dir / "b/chat_template.jinja"));
  EXPECT_EQ(read_json_file(dir / "b/config.json")["dtype"], "float32");
  const Loaded a(dir / "a"), b(dir / "b");
  ParameterStore expected;
  for (const ParamSpec& spec : b.specs) expected.add(spec);
  expected.allocate(DType::f32, false);
  random_init(expected, b.config, 11);
  EXPECT_EQ(std::memcmp(b.store.flat_values().data, expected.flat_values().data,
                        static_cast<size_t>(expected.flat_values().bytes())),
            0);
  EXPECT_EQ(a.folder.tensors().at("lm_head.weight").dtype, "F16");
  EXPECT_NE(a.store.list().front().value.as<float>()[0], b.store.list().front().value.as<float>()[0]);
  expect_error(Exit::usage, {"nowhere"}, "config",
               [&] { init_model_folder(dir / "nowhere.json", dir / "c", specs_of, {}); });
  expect_error(Exit::usage, {"nowhere"}, "tokenizer", [&] {
    init_model_folder(kQwen3 + "/config.json", dir / "c", specs_of, {.tokenizer_folder = dir / "nowhere"});
  });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
