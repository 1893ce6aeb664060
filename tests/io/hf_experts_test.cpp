// Folders of experts: a tensor each, as they are published, and fused. Both are one model.

#include <gtest/gtest.h>

#include <filesystem>

#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_export.h"
#include "src/io/hf/hf_import.h"
#include "src/models/parameter_specs.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

constexpr const char* kWeights = "model.safetensors";
const char* const kFamilies[] = {"qwen3-moe-default", "qwen2-moe-default", "mixtral-default"};

std::string single(const std::string& name) { return "tests/golden/moe/models/" + name; }
std::string fused(const std::string& name) { return "tests/golden/moe/fused/" + name; }

struct Loaded {
  explicit Loaded(const std::string& path, DType dtype = DType::f32) : folder(ModelFolder::open(path)) {
    config = parse_model_config(folder.config(), nullptr, folder.config_path());
    folder.match_names(config);
    specs = parameter_specs(config);
    for (const ParamSpec& spec : specs) store.add(spec);
    store.allocate(dtype, false);
    digest = import_weights(folder, config, store).digest;
  }
  void write(const std::string& out, const ExportOptions& options = {}) const {
    export_model(folder.path(), specs, store_reader(store), out, options);
  }
  std::string values() const {
    const Tensor all = store.flat_values();
    return {static_cast<const char*>(all.raw()), static_cast<size_t>(all.bytes())};
  }
  ModelFolder folder;
  ModelConfig config;
  std::vector<ParamSpec> specs;
  ParameterStore store;
  std::string digest;
};

std::string weights_of(const std::string& folder) {
  return read_file(join_path(folder, kWeights), 100 << 20);
}

TEST(HfExperts, FusedOrNotTheyAreOneModel) {
  for (const char* name : kFamilies)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Loaded one(single(name), dtype), other(fused(name), dtype);
      EXPECT_EQ(one.digest, other.digest) << name;
      EXPECT_EQ(one.values() == other.values(), true) << name;
    }
}

TEST(HfExperts, AnExportHasATensorForEach) {
  for (const char* name : kFamilies) {
    const TempDir dir;
    Loaded(single(name)).write(dir / "one");
    EXPECT_EQ(weights_of(dir / "one") == weights_of(single(name)), true) << name;
    Loaded(fused(name)).write(dir / "other");
    EXPECT_EQ(weights_of(dir / "other") == weights_of(single(name)), true) << name;
    Loaded(fused(name)).write(dir / "small", {.shard_bytes = 4096});
    EXPECT_GT(ModelFolder::open(dir / "small").files().size(), 5u);
    EXPECT_EQ(Loaded(dir / "small").digest, Loaded(single(name)).digest) << name;
  }
}

TEST(HfExperts, UntouchedFoldersComeOutByteForByte) {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden/moe/models")) {
    if (entry.path().string().find("window") != std::string::npos) continue;  // refused
    const TempDir dir;
    const Loaded model(entry.path());
    model.write(dir / "out");
    for (const std::string& file : model.folder.files()) {
      EXPECT_EQ(read_file(dir / ("out/" + file), 1 << 20) == read_file(entry.path() / file, 1 << 20), true)
          << entry.path() << " " << file;
      ++compared;
    }
  }
  EXPECT_GE(compared, 10);
}

/// No trained weight is that of the source again, under whatever name.
TEST(HfExperts, AnExportOfFusedOnesHoldsTheNewWeights) {
  for (const char* name : kFamilies) {
    const TempDir dir;
    Loaded model(fused(name));
    for (const Parameter& p : model.store.list()) {
      float* values = p.value.as<float>();
      for (int64_t i = 0; i < p.value.size(); ++i) values[i] = values[i] * 2 + 1;
    }
    model.write(dir / "out");
    const Loaded again(dir / "out");
    EXPECT_EQ(again.values() == model.values(), true) << name;
    const std::map<std::string, TensorInfo> written = ModelFolder::open(dir / "out").tensors(),
                                            published = ModelFolder::open(single(name)).tensors();
    ASSERT_EQ(written.size(), published.size()) << name;
    for (const auto& [tensor, info] : published) EXPECT_TRUE(written.contains(tensor)) << tensor;
  }
}

TEST(HfExperts, AnExportNamesTheirNumberAsEveryReaderDoes) {
  for (const char* name : kFamilies) {
    const TempDir dir;
    const Loaded model(single(name));
    model.write(dir / "out");
    const Json config = read_json_file(dir / "out/config.json");
    for (const char* key : {"num_experts", "num_local_experts"})
      EXPECT_EQ(config.at(key), model.config.moe.num_experts) << name << " " << key;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
