// train.freeze: what is refused, and runs whose frozen tensors keep their bits through saves, resumes with
// another list, exports and dumps of gradients.

#include "src/io/checkpoint/manifest.h"
#include "src/io/hf/safetensors.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

constexpr const char* kConfig = R"(
run.name = "run"
run.steps = 2
algorithm.name = "sft"
train.samples_per_update = 8
checkpoint.every = 1
checkpoint.export_hf_every = 2
)";
/// Both layers have what is frozen, and what is not.
const std::string kMlps = R"('train.freeze=["model.layers.*.mlp.*", "model.embed_tokens.weight"]')";

class FreezeRun : public RunFixture {
 protected:
  void SetUp() override { prepare(kConfig, sums(40)); }

  void expect_refused(const std::string& list, const std::vector<std::string>& words) const {
    EXPECT_EQ(program_.run("check run.toml 'train.freeze=" + list + "'"), static_cast<int>(Exit::usage))
        << list;
    for (const std::string& word : words) EXPECT_TRUE(says(word)) << word << "\n" << output();
  }
  static bool is_frozen(const std::string& tensor) {
    return tensor.find(".mlp.") != std::string::npos || tensor == "model.embed_tokens.weight";
  }
  std::string bytes_of(const SafetensorsFile& file, const TensorInfo& info) const {
    std::string bytes(static_cast<size_t>(info.end - info.begin), '\0');
    file.read(info.begin, info.end - info.begin, bytes.data());
    return bytes;
  }
  /// An export has the bits of the model that the run began with in frozen tensors alone.
  void expect_frozen_alone_unchanged(const std::string& exported) const {
    const SafetensorsFile now(program_.path(exported + "/model.safetensors"), "now"),
        first(program_.path("model/model.safetensors"), "first");
    for (const auto& [name, info] : first.tensors())
      EXPECT_EQ(bytes_of(now, now.tensors().at(name)) == bytes_of(first, info), is_frozen(name)) << name;
  }
};

TEST_F(FreezeRun, IsRefusedWithWhatItCouldBe) {
  expect_refused(R"(["model.embed_token.weight"])",
                 {"train.freeze", "did you mean", "model.embed_tokens.weight"});
  expect_refused(R"(["model.layers.0.self_attn.q_proj.weight"])",
                 {"stored as one with model.layers.0.self_attn.k_proj.weight", "name all 3 of them"});
  expect_refused(R"(["*"])", {"nothing is left to train"});
  EXPECT_EQ(program_.run("check run.toml " + kMlps), 0) << output();
}

TEST_F(FreezeRun, KeepsTheBitsOfWhatIsFrozen) {
  const std::string layout = "roles.trainer.zero=3 ";
  ASSERT_EQ(program_.run_ranks(2, "train run.toml --dump-gradients dumped " + layout + kMlps), 0) << output();
  expect_frozen_alone_unchanged("runs/run/export/step-000002");
  const Manifest manifest = Manifest::read(program_.path(checkpoint("run", 2)));
  EXPECT_TRUE(manifest.tensors().contains("param/layers.0.mlp.wgu"));
  EXPECT_FALSE(manifest.tensors().contains("opt/m/layers.0.mlp.wgu"));
  EXPECT_TRUE(manifest.tensors().contains("opt/m/layers.0.attn.wqkv"));
  const SafetensorsFile gradients(program_.path("dumped/update-000001.safetensors"), "dumped");
  const SafetensorsFile first(program_.path("model/model.safetensors"), "first");
  for (const auto& [name, info] : first.tensors())
    EXPECT_EQ(gradients.tensors().contains(name), !is_frozen(name)) << name;
  ASSERT_EQ(program_.run("export --checkpoint runs/run --out out"), 0) << output();
  expect_frozen_alone_unchanged("out");
  // A run that was stopped goes on with the same bits, on any layout.
  const std::string weights = exported_weights("run", 2);
  copy_until("run", "resumed", 1, 2);
  std::filesystem::remove_all(program_.path("runs/resumed/export"));
  ASSERT_EQ(program_.run_ranks(2, "train run.toml run.name=resumed " + layout + kMlps), 0) << output();
  EXPECT_TRUE(exported_weights("resumed", 2) == weights);
}

/// Moments of what was frozen begin at zero.
TEST_F(FreezeRun, AnotherListIsAnotherRun) {
  ASSERT_EQ(program_.run("train run.toml " + kMlps), 0) << output();
  const std::string more = "train run.toml run.steps=3 ";
  EXPECT_EQ(program_.run(more), static_cast<int>(Exit::usage));
  EXPECT_TRUE(says("train.freeze") && says("checkpoint.accept_changes")) << output();
  EXPECT_EQ(program_.run(more + "checkpoint.accept_changes=true"), 0) << output();
  const Manifest manifest = Manifest::read(program_.path(checkpoint("run", 3)));
  EXPECT_TRUE(manifest.tensors().contains("opt/m/layers.0.mlp.wgu"));
  EXPECT_EQ(program_.run(more + "run.steps=4 checkpoint.accept_changes=true " + kMlps), 0) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
