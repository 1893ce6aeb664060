// Model folders that are wrong in one way each: the whole way from path to loaded weights must end in an
// Error with the right exit code that names what is wrong, and never in anything else.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_import.h"
#include "src/models/parameter_specs.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kNorm = "model.norm.weight";

/// Everything that a start with model.path does.
void load(const std::string& path) {
  ModelFolder folder = ModelFolder::open(path);
  const Json* generation = folder.generation_config() ? &*folder.generation_config() : nullptr;
  const ModelConfig config = parse_model_config(folder.config(), generation, folder.config_path());
  const std::vector<ParamSpec> specs = parameter_specs(config);
  folder.match_names(config);
  check_weights(folder, config, specs);
  ParameterStore store;
  for (const ParamSpec& spec : specs) store.add(spec);
  store.allocate(DType::f32, false);
  import_weights(folder, config, store);
}

/// A copy of a good folder with the edits that the cases need.
class Folder {
 public:
  explicit Folder(const std::string& source) {
    for (const auto& entry : fs::directory_iterator(source))
      if (entry.path().filename() != "expected.json")
        fs::copy(entry.path(), path(entry.path().filename().string()));
  }
  std::string path(const std::string& name) const { return dir_ / name; }
  const std::string& path() const { return dir_.path(); }
  std::string read(const std::string& name) const { return read_file(path(name), 1 << 20); }
  void write(const std::string& name, const std::string& text) const { write_file_atomic(path(name), text); }
  void remove(const std::string& name) const { fs::remove(path(name)); }
  void link(const std::string& target, const std::string& name) const {
    remove(name);
    fs::create_symlink(target, path(name));
  }
  void config(const std::string& key, const Json& value) const {
    Json json = parse_json(read("config.json"), "test");
    json[key] = value;
    write("config.json", json.dump());
  }
  void map(const std::string& tensor, const Json& file) const {
    Json json = parse_json(read(kIndex), "test");
    json["weight_map"][tensor] = file;
    write(kIndex, json.dump());
  }
  void replace(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = read(name);
    const size_t at = text.find(from);
    CHECK(at != std::string::npos, "{} is not in {}", from, name);
    write(name, text.replace(at, from.size(), to));
  }
  /// Overwrites bytes of a file, keeping its size.
  void poke(const std::string& name, size_t at, const std::string& bytes) const {
    std::string text = read(name);
    write(name, text.replace(at, bytes.size(), bytes));
  }
  /// Rewrites a weight file from its tensors after an edit of the list.
  template <class Edit>
  void weights(const std::string& name, Edit&& edit) const {
    std::vector<TensorToWrite> tensors;
    {
      const SafetensorsFile file(path(name), name);
      for (const auto& [tensor, info] : file.tensors()) {
        std::string raw(static_cast<size_t>(info.end - info.begin), '\0');
        file.read(info.begin, info.end - info.begin, raw.data());
        tensors.push_back({tensor, info.dtype, info.shape, [raw](OutputFile& f) { f.write(raw); }});
      }
    }
    edit(tensors);
    remove(name);
    write_safetensors(path(name), tensors);
  }
  int64_t data_of(const std::string& tensor) const {
    return ModelFolder::open(path()).tensors().at(tensor).begin;
  }

 private:
  TempDir dir_;
};

TensorToWrite zeros(const std::string& name, std::vector<int64_t> shape) {
  TensorToWrite t{name, "BF16", std::move(shape), {}};
  t.write = [n = t.bytes()](OutputFile& f) { f.write(std::string(static_cast<size_t>(n), '\0')); };
  return t;
}

std::vector<TensorToWrite>::iterator find(std::vector<TensorToWrite>& list, const std::string& name) {
  return std::find_if(list.begin(), list.end(), [&](const TensorToWrite& t) { return t.name == name; });
}

using List = std::vector<TensorToWrite>;

struct Case {
  std::string label;
  std::vector<std::string> words;
  std::function<void(const Folder&)> edit;
};

void expect_all_refused(const std::string& source, const std::vector<Case>& cases) {
  {
    const Folder good(source);
    EXPECT_NO_THROW(load(good.path()));
  }
  for (const Case& c : cases) {
    const Folder folder(source);
    c.edit(folder);
    expect_error(Exit::data, c.words, c.label, [&] { load(folder.path()); });
  }
}

TEST(BrokenFolder, WeightFile) {
  using F = const Folder&;
  expect_all_refused(
      "tests/golden/io/llama-v4",
      {
          {"no weights", {"no weights", kWeights}, [](F f) { f.remove(kWeights); }},
          {"only pickle weights",
           {"pickle"},
           [](F f) { fs::rename(f.path(kWeights), f.path("pytorch_model.bin")); }},
          {"empty file", {kWeights, "0 bytes"}, [](F f) { f.write(kWeights, ""); }},
          {"truncated header",
           {kWeights, "header length"},
           [](F f) { f.write(kWeights, f.read(kWeights).substr(0, 100)); }},
          {"header length too large", {"header length"}, [](F f) { f.poke(kWeights, 4, "\x01"); }},
          {"truncated data",
           {"truncated"},
           [](F f) { f.write(kWeights, f.read(kWeights).substr(0, f.read(kWeights).size() - 1)); }},
          {"text instead",
           {kWeights},
           [](F f) { f.write(kWeights, "version https://git-lfs.github.com/spec/v1\n"); }},
          {"a folder instead",
           {kWeights, "regular"},
           [](F f) {
             f.remove(kWeights);
             fs::create_directory(f.path(kWeights));
           }},
          {"a pipe instead",
           {kWeights, "regular"},
           [](F f) {
             f.remove(kWeights);
             ::mkfifo(f.path(kWeights).c_str(), 0600);
           }},
          {"duplicate name",
           {"duplicate", "model.layers.1.input_layernorm.weight"},
           [](F f) {
             f.replace(kWeights, "\"model.layers.0.input_layernorm.weight\"",
                       "\"model.layers.1.input_layernorm.weight\"");
           }},
      });
}

TEST(BrokenFolder, Tensors) {
  using F = const Folder&;
  const auto edit = [](auto change) { return [change](F f) { f.weights(kWeights, change); }; };
  expect_all_refused(
      "tests/golden/io/llama-v4",
      {
          {"missing tensor", {kNorm, "missing", "[16]"}, edit([](List& l) { l.erase(find(l, kNorm)); })},
          {"renamed tensor", {"model.layers.1.mlp.up_proj.weight", "missing"}, edit([](List& l) {
             find(l, "model.layers.1.mlp.up_proj.weight")->name = "model.layers.1.mlp.up.weight";
           })},
          {"misshaped tensor", {kNorm, "[4, 4]", "[16]"}, edit([](List& l) {
             find(l, kNorm)->shape = {4, 4};
           })},
          {"transposed tensor", {"gate_proj", "[16, 24]", "[24, 16]"}, edit([](List& l) {
             find(l, "model.layers.0.mlp.gate_proj.weight")->shape = {16, 24};
           })},
          {"extra tensor", {"extra.weight", "does not belong"}, edit([](List& l) {
             l.push_back(zeros("extra.weight", {2}));
           })},
          {"integer weights", {kNorm, "I16"}, edit([](List& l) { find(l, kNorm)->dtype = "I16"; })},
          {"quantised weights", {kNorm, "F8_E4M3"}, edit([](List& l) {
             *find(l, kNorm) = {kNorm, "F8_E4M3", {16}, [](OutputFile& f) { f.write(std::string(16, 'x')); }};
           })},
          {"NaN",
           {kNorm, "[3]", "nan", "finite"},
           [](F f) { f.poke(kWeights, static_cast<size_t>(f.data_of(kNorm)) + 6, "\xc0\x7f"); }},
          {"infinity",
           {"lm_head.weight", "[0, 0]", "-inf"},
           [](F f) {
             f.poke(kWeights, static_cast<size_t>(f.data_of("lm_head.weight")), std::string("\x80\xff", 2));
           }},
          {"config is larger than the weights",
           {"model.layers.2.input_layernorm.weight", "missing"},
           [](F f) { f.config("num_hidden_layers", 3); }},
          {"vocabulary of another model",
           {"model.embed_tokens.weight", "[32, 16]", "[64, 16]"},
           [](F f) { f.config("vocab_size", 64); }},
          {"plausible but enormous",
           {"model.embed_tokens.weight", "[16777216, 16]"},
           [](F f) { f.config("vocab_size", 16777216); }},
          {"tied without equal head",
           {"lm_head.weight", "differs", "tie_word_embeddings"},
           [](F f) { f.config("tie_word_embeddings", true); }},
      });
}

TEST(BrokenFolder, ShardsAndIndex) {
  using F = const Folder&;
  const std::string first = "model-00001-of-00003.safetensors", third = "model-00003-of-00003.safetensors";
  expect_all_refused(
      "tests/golden/io/qwen2-sharded",
      {
          {"missing shard", {third, "missing"}, [=](F f) { f.remove(third); }},
          {"path traversal", {kNorm, "plain file name"}, [=](F f) { f.map(kNorm, "../" + third); }},
          {"absolute path", {kNorm, "/etc/passwd"}, [](F f) { f.map(kNorm, "/etc/passwd"); }},
          {"parent folder", {kNorm, "plain"}, [](F f) { f.map(kNorm, ".."); }},
          {"empty name", {kNorm, "plain"}, [](F f) { f.map(kNorm, ""); }},
          {"name with a zero byte", {kNorm, "plain"}, [](F f) { f.map(kNorm, std::string("a\0b", 3)); }},
          {"name a number", {kNorm, "plain"}, [](F f) { f.map(kNorm, 3); }},
          {"name an object", {kNorm}, [](F f) { f.map(kNorm, Json::object()); }},
          {"wrong shard", {kNorm, "wrong file", first, third}, [=](F f) { f.map(kNorm, first); }},
          {"index names an unknown tensor",
           {"\"ghost\"", "missing", first},
           [=](F f) { f.map("ghost", first); }},
          {"tensor not in the index",
           {kNorm, "not in the index"},
           [](F f) {
             f.replace(kIndex, ",\n    \"model.norm.weight\": \"model-00003-of-00003.safetensors\"", "");
           }},
          {"tensor in two files",
           {kNorm, "two files"},
           [=](F f) { f.weights(first, [](auto& l) { l.push_back(zeros(kNorm, {16})); }); }},
          {"file that is no shard", {"config.json", "header"}, [](F f) { f.map(kNorm, "config.json"); }},
          {"no weight_map", {"weight_map"}, [](F f) { f.replace(kIndex, "weight_map", "weight_mop"); }},
          {"empty weight_map", {"weight_map"}, [](F f) { f.write(kIndex, R"({"weight_map":{}})"); }},
          {"weight_map a list",
           {"JSON", "weight_map"},
           [](F f) { f.write(kIndex, R"({"weight_map":[1]})"); }},
          {"index a list", {kIndex, "JSON"}, [](F f) { f.write(kIndex, "[]"); }},
          {"index empty", {kIndex, "JSON"}, [](F f) { f.write(kIndex, ""); }},
          {"index cut", {kIndex, "JSON"}, [](F f) { f.write(kIndex, f.read(kIndex).substr(0, 300)); }},
          {"duplicate in the index",
           {kIndex, "duplicate"},
           [](F f) {
             f.replace(kIndex, "\"model.layers.0.input_layernorm.weight\"", "\"model.embed_tokens.weight\"");
           }},
          {"too many files",
           {"too many", "600"},
           [](F f) {
             Json map;
             for (int i = 0; i < 600; ++i) map[fmt::format("t{}", i)] = fmt::format("f{}", i);
             f.write(kIndex, Json{{"weight_map", map}}.dump());
           }},
      });
}

TEST(BrokenFolder, Links) {
  using F = const Folder&;
  const TempDir outside;
  const std::string weights = outside / "w";
  fs::copy("tests/golden/io/llama-v4/model.safetensors", weights);
  expect_all_refused(
      "tests/golden/io/llama-v4",
      {
          {"link out", {kWeights, "link out"}, [&](F f) { f.link(weights, kWeights); }},
          {"relative link out", {"link out"}, [&](F f) { f.link("../x", kWeights); }},
          {"blobs without snapshots", {"link out"}, [&](F f) { f.link("../../blobs/abc", kWeights); }},
          {"link to nothing", {kWeights, "does not exist"}, [&](F f) { f.link("gone", kWeights); }},
          {"link to itself", {kWeights, "regular"}, [&](F f) { f.link(kWeights, kWeights); }},
          {"config linked out",
           {"config.json", "link out"},
           [&](F f) { f.link("/etc/passwd", "config.json"); }},
          {"tokenizer linked out",
           {"tokenizer.json", "link out"},
           [&](F f) { f.link("/etc/passwd", "tokenizer.json"); }},
      });
}

TEST(BrokenFolder, TheCachePatternOfHuggingFaceIsFollowed) {
  const TempDir cache;
  make_directories(cache / "models--x/blobs");
  make_directories(cache / "models--x/snapshots/abc");
  for (const char* name : {"config.json", kWeights}) {
    fs::copy(join_path("tests/golden/io/llama-v4", name), cache / ("models--x/blobs/0" + std::string(name)));
    fs::create_symlink("../../blobs/0" + std::string(name),
                       cache / ("models--x/snapshots/abc/" + std::string(name)));
  }
  EXPECT_NO_THROW(load(cache / "models--x/snapshots/abc"));
  fs::create_symlink("models--x/snapshots/abc", cache / "model");
  EXPECT_NO_THROW(load(cache / "model"));
  fs::remove(cache / "models--x/snapshots/abc/model.safetensors");
  fs::create_symlink("../../blobs/../../secret", cache / "models--x/snapshots/abc/model.safetensors");
  expect_error(Exit::data, {"link out"}, "dots behind blobs", [&] { load(cache / "model"); });
}

TEST(BrokenFolder, Config) {
  using F = const Folder&;
  const auto set = [](const char* key, Json value) { return [=](F f) { f.config(key, value); }; };
  const auto text = [](const char* content) { return [=](F f) { f.write("config.json", content); }; };
  expect_all_refused(
      "tests/golden/io/llama-v4",
      {
          {"missing", {"config.json", "missing"}, [](F f) { f.remove("config.json"); }},
          {"empty", {"config.json", "JSON"}, text("")},
          {"not JSON", {"config.json", "JSON"}, text("model_type: llama")},
          {"a list", {"config.json", "object"}, text("[1]")},
          {"duplicate key", {"duplicate", "hidden_size"}, text(R"({"hidden_size":1,"hidden_size":2})")},
          {"number overflow", {"config.json", "JSON"}, text(R"({"model_type":"llama","vocab_size":1e400})")},
          {"too deep", {"deeper"}, [](F f) { f.write("config.json", std::string(5000, '[')); }},
          {"too large",
           {"config.json", "large"},
           [](F f) { f.write("config.json", std::string(1 << 20, ' ')); }},
          {"generation_config a list",
           {"generation_config"},
           [](F f) { f.write("generation_config.json", "[]"); }},
          {"generation_config broken",
           {"generation_config.json", "JSON"},
           [](F f) { f.write("generation_config.json", "{"); }},
          {"eos in generation_config",
           {"generation_config.eos_token_id"},
           [](F f) { f.write("generation_config.json", R"({"eos_token_id":"x"})"); }},
          {"negative", {"num_hidden_layers", "-2"}, set("num_hidden_layers", -2)},
          {"huge", {"hidden_size"}, set("hidden_size", int64_t{1} << 62)},
          {"heads do not divide", {"num_key_value_heads", "3"}, set("num_key_value_heads", 3)},
          {"vocabulary 0", {"vocab_size"}, set("vocab_size", 0)},
          {"unknown family", {"model_type", "gpt2"}, set("model_type", "gpt2")},
          {"unknown architecture",
           {"DeepseekV3ForCausalLM", "supported"},
           set("architectures", {"DeepseekV3ForCausalLM"})},
          {"string for a number", {"intermediate_size"}, set("intermediate_size", "24")},
          {"unknown rope", {"rope_scaling.rope_type", "ntk"}, set("rope_scaling", {{"rope_type", "ntk"}})},
          {"quantised", {"quantization_config"}, set("quantization_config", {{"quant_method", "gptq"}})},
          {"activation", {"hidden_act", "relu"}, set("hidden_act", "relu")},
          {"odd head_dim", {"head_dim"}, set("head_dim", 3)},
          {"biases that are not there", {"q_proj.bias", "missing"}, set("attention_bias", true)},
      });
}

/// A golden folder of experts, a tensor each or fused, and how its tensors are called.
struct Experts {
  std::string folder, layer;  // "model.layers.1.mlp."
  int64_t number;
  std::string gate, up, down;
  bool fused = false;

  std::string source() const {
    return fmt::format("tests/golden/moe/{}/{}", fused ? "fused" : "models", folder);
  }
  std::string of(int64_t expert, const std::string& tensor) const {
    return fmt::format("{}experts.{}.{}.weight", layer, expert, tensor);
  }
};

const Experts kExperts[] = {
    {"qwen3-moe-default", "model.layers.1.mlp.", 6, "gate_proj", "up_proj", "down_proj"},
    {"qwen2-moe-default", "model.layers.0.mlp.", 6, "gate_proj", "up_proj", "down_proj"},
    {"mixtral-default", "model.layers.1.block_sparse_moe.", 4, "w1", "w3", "w2"},
};
constexpr int64_t kWidth = 16, kExpertSize = 8;  // H and Fm of all of them: 2 Fm = H

template <class Change>
std::function<void(const Folder&)> edited(Change change) {
  return [change](const Folder& f) { f.weights(kWeights, change); };
}
std::function<void(const Folder&)> without(const std::string& name) {
  return edited([=](List& l) { l.erase(find(l, name)); });
}
std::function<void(const Folder&)> renamed(const std::string& name, const std::string& other) {
  return edited([=](List& l) { find(l, name)->name = other; });
}
std::function<void(const Folder&)> with(const std::string& name, std::vector<int64_t> shape) {
  return edited([=](List& l) { l.push_back(zeros(name, shape)); });
}
std::function<void(const Folder&)> replaced(const std::string& name, TensorToWrite other) {
  return edited([=](List& l) { *find(l, name) = other; });
}
/// Its first element becomes a NaN of fp32.
std::function<void(const Folder&)> spoiled(const std::string& name) {
  return [=](const Folder& f) {
    f.poke(kWeights, static_cast<size_t>(f.data_of(name)), std::string("\0\0\xc0\x7f", 4));
  };
}
TensorToWrite filled(const std::string& name, const char* dtype, std::vector<int64_t> shape) {
  TensorToWrite t = zeros(name, std::move(shape));
  t.dtype = dtype;
  t.write = [n = t.bytes()](OutputFile& f) { f.write(std::string(static_cast<size_t>(n), '\0')); };
  return t;
}

TEST(BrokenFolder, SingleExperts) {
  for (const Experts& x : kExperts) {
    const int64_t n = x.number, last = n - 1;
    const std::string router = x.layer + "gate.weight", hf = x.layer.substr(0, x.layer.find("layers.") + 9);
    const std::string gate_up = hf + "mlp.experts.gate_up_proj", down = hf + "mlp.experts.down_proj";
    expect_all_refused(
        x.source(),
        {
            {"no gate", {x.of(0, x.gate), "missing"}, without(x.of(0, x.gate))},
            {"no down", {x.of(last, x.down), "missing"}, without(x.of(last, x.down))},
            {"transposed", {x.of(1, x.up), "[16, 8]", "[8, 16]"}, edited([=](List& l) {
               find(l, x.of(1, x.up))->shape = {16, 8};
             })},
            {"of integers", {x.of(2, x.down), "I32"}, edited([=](List& l) {
               find(l, x.of(2, x.down))->dtype = "I32";
             })},
            {"quantised",
             {x.of(2, x.gate), "F8_E4M3"},
             replaced(x.of(2, x.gate), filled(x.of(2, x.gate), "F8_E4M3", {kExpertSize, kWidth}))},
            {"NaN", {x.of(last, x.up), "[0, 0]", "nan"}, spoiled(x.of(last, x.up))},
            {"a gap in the ids", {x.of(1, x.gate), "missing"}, renamed(x.of(1, x.gate), x.of(n, x.gate))},
            {"a zero before the id",
             {x.of(last, x.gate), "missing"},
             renamed(x.of(last, x.gate), fmt::format("{}experts.0{}.{}.weight", x.layer, last, x.gate))},
            {"0 is called 9", {x.of(0, x.up), "missing"}, renamed(x.of(0, x.up), x.of(9, x.up))},
            {"one too many",
             {x.of(n, x.gate), "does not belong"},
             with(x.of(n, x.gate), {kExpertSize, kWidth})},
            {"no router", {router, "missing"}, without(router)},
            {"a router of more experts",
             {router, fmt::format("[{}, 16]", n + 1)},
             replaced(router, zeros(router, {n + 1, kWidth}))},
            {"fused gate and up only", {down, "missing"}, with(gate_up, {n, 2 * kExpertSize, kWidth})},
            {"fused down only", {gate_up, "missing"}, with(down, {n, kWidth, kExpertSize})},
            {"fused and single", {x.of(0, x.down), "twice", down}, edited([=](List& l) {
               l.push_back(zeros(gate_up, {n, 2 * kExpertSize, kWidth}));
               l.push_back(zeros(down, {n, kWidth, kExpertSize}));
             })},
        });
  }
}

TEST(BrokenFolder, FusedExperts) {
  for (Experts x : kExperts) {
    x.fused = true;
    const int64_t n = x.number;
    const std::string hf = x.layer.substr(0, x.layer.find("layers.") + 9) + "mlp.";
    const std::string gate_up = hf + "experts.gate_up_proj", down = hf + "experts.down_proj";
    const auto nan_of = [=](int64_t expert) {  // in a fused tensor
      return [=](const Folder& f) {
        f.poke(kWeights, static_cast<size_t>(f.data_of(down) + expert * kWidth * kExpertSize * 4),
               std::string("\0\0\xc0\x7f", 4));
      };
    };
    expect_all_refused(
        x.source(),
        {
            {"no gate and up", {gate_up, "missing"}, without(gate_up)},
            {"no down", {down, "missing"}, without(down)},
            {"transposed", {down, fmt::format("[{}, 8, 16]", n), "inputs x outputs"}, edited([=](List& l) {
               find(l, down)->shape = {n, kExpertSize, kWidth};  // of gate_up both shapes are one
             })},
            {"flat", {gate_up, fmt::format("[{}, 16]", 16 * n)}, edited([=](List& l) {
               find(l, gate_up)->shape = {n * 2 * kExpertSize, kWidth};
             })},
            {"more experts",
             {down, fmt::format("[{}, 16, 8]", n + 1)},
             replaced(down, zeros(down, {n + 1, kWidth, kExpertSize}))},
            {"wider experts",
             {gate_up, "[", ", 18, 16]"},
             replaced(gate_up, zeros(gate_up, {n, 18, kWidth}))},
            {"of integers", {gate_up, "I32"}, edited([=](List& l) { find(l, gate_up)->dtype = "I32"; })},
            {"of half bytes", {down, "F4"}, replaced(down, filled(down, "F4", {n, kWidth, kExpertSize}))},
            {"NaN", {x.of(n - 1, x.down), "[0, 0]", "nan"}, nan_of(n - 1)},
            {"named like a layer's", {gate_up, "missing"}, renamed(gate_up, gate_up + ".weight")},
            {"single ones, too",
             {x.of(1, x.gate), "twice", gate_up},
             with(x.of(1, x.gate), {kExpertSize, kWidth})},
            {"one too many",
             {x.of(n, x.gate), "does not belong"},
             with(x.of(n, x.gate), {kExpertSize, kWidth})},
            {"no router", {x.layer + "gate.weight", "missing"}, without(hf + "gate.weight")},
        });
  }
}

TEST(BrokenFolder, RoutersAndSharedExperts) {
  const std::string moe = "model.layers.1.mlp.", gate = moe + "shared_expert_gate.weight",
                    up = moe + "shared_expert.up_proj.weight";
  for (const bool fused : {false, true}) {
    Experts x = kExperts[1];
    x.fused = fused;
    expect_all_refused(x.source(), {
                                       {"no gate", {gate, "missing"}, without(gate)},
                                       {"a flat gate", {gate, "[16]", "[1, 16]"}, edited([=](List& l) {
                                          find(l, gate)->shape = {kWidth};
                                        })},
                                       {"no up", {up, "missing"}, without(up)},
                                       {"as wide as a single one",
                                        {up, "[8, 16]", "[12, 16]"},
                                        replaced(up, zeros(up, {kExpertSize, kWidth}))},
                                   });
  }
  Experts mixtral = kExperts[2];
  const std::string router = mixtral.layer + "gate.weight", other = "model.layers.1.mlp.gate.weight";
  expect_all_refused(mixtral.source(),
                     {{"the fused form's name", {router, "missing"}, renamed(router, other)},
                      {"both names", {other, "does not belong"}, with(other, {4, kWidth})}});
  mixtral.fused = true;
  expect_all_refused(mixtral.source(), {{"both names", {router, "twice"}, with(router, {4, kWidth})}});
}

TEST(BrokenFolder, ConfigOfExperts) {
  const auto set = [](const char* key, Json value) { return [=](const Folder& f) { f.config(key, value); }; };
  expect_all_refused(
      kExperts[1].source(),
      {
          {"more of them take a token",
           {"num_experts_per_tok", "7 of 6", "1 to 6"},
           set("num_experts_per_tok", 7)},
          {"none takes a token", {"num_experts_per_tok", "0"}, set("num_experts_per_tok", 0)},
          {"two numbers", {"num_experts", "6", "num_local_experts", "8"}, set("num_local_experts", 8)},
          {"too many", {"num_experts", "5000"}, set("num_experts", 5000)},
          {"negative", {"num_experts", "-1"}, set("num_experts", -1)},
          {"fewer than there are", {"gate.weight", "[6, 16]", "[4, 16]"}, set("num_experts", 4)},
          {"dense", {"model.layers.0.mlp.gate_proj.weight", "missing"}, set("num_experts", 0)},
          {"no width", {"moe_intermediate_size", "0"}, set("moe_intermediate_size", 0)},
          {"another width", {".experts.0.gate_proj.weight", "[24, 16]"}, set("moe_intermediate_size", 24)},
          {"no shared width",
           {"shared_expert_intermediate_size", "0"},
           set("shared_expert_intermediate_size", 0)},
          {"a layer beyond", {"mlp_only_layers", "layer 2 of 2", "0 to 1"}, set("mlp_only_layers", {2})},
          {"a layer before", {"mlp_only_layers", "-1"}, set("mlp_only_layers", {-1})},
          {"layers as text", {"mlp_only_layers"}, set("mlp_only_layers", "all")},
          {"a dense layer", {"model.layers.1.mlp.gate_proj.weight", "missing"}, set("mlp_only_layers", {1})},
          {"every 0th layer", {"decoder_sparse_step", "0"}, set("decoder_sparse_step", 0)},
          {"every second layer",
           {"model.layers.0.mlp.gate_proj.weight", "missing"},
           set("decoder_sparse_step", 2)},
          {"text for a flag", {"norm_topk_prob"}, set("norm_topk_prob", "yes")},
      });
}

TEST(BrokenFolder, SaysWhichOfTwoSetsOfWeightsIsRead) {
  const Folder folder("tests/golden/io/qwen2-sharded");
  EXPECT_TRUE(ModelFolder::open(folder.path()).warnings().empty());
  folder.write(kWeights, "not even read");
  const ModelFolder both = ModelFolder::open(folder.path());
  ASSERT_EQ(both.warnings().size(), 1u);
  EXPECT_NE(both.warnings()[0].find("model.safetensors is not read"), std::string::npos);
  EXPECT_NE(both.warnings()[0].find("files that the index names"), std::string::npos);
}

TEST(BrokenFolder, PathsThatDoNotExistAreUsageErrors) {
  expect_error(Exit::usage, {"/nowhere/at/all"}, "no folder", [] { load("/nowhere/at/all"); });
  expect_error(Exit::usage, {"config.json"}, "a file", [] { load("tests/golden/io/llama-v4/config.json"); });
}

TEST(BrokenFolder, RandomDamageToTextFilesNeverEscapesAsAnythingElse) {
  std::mt19937 random(3);
  const Folder folder("tests/golden/io/qwen2-sharded");
  for (const char* name : {"config.json", kIndex, "generation_config.json"}) {
    const std::string good = folder.read(name);
    int refused = 0;
    for (int round = 0; round < 150; ++round) {
      std::string text = good;
      for (uint32_t edits = 1 + random() % 4; edits > 0; --edits)
        text[random() % text.size()] = static_cast<char>(32 + random() % 200);
      folder.write(name, text);
      try {
        load(folder.path());
      } catch (const Error& e) {
        ++refused;
        EXPECT_EQ(e.code(), Exit::data) << e.what();
      }
    }
    EXPECT_GT(refused, 50) << name;
    folder.write(name, good);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
