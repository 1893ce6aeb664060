// Runs of hybrid models: rollout and trainer have one numerics in every layout, with states that are shared,
// preempted and begun again, and with weights of steps before.

#include "src/io/hf/safetensors.h"
#include "tests/e2e/hybrid_run.h"
#include "tests/support/run_list.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

TEST_F(HybridRun, RolloutAndTrainerHaveOneNumerics) {
  const std::vector<std::pair<const char*, const char*>> layouts{
      {"dp2", ""},
      {"pp2", "roles.trainer.pp=2"},
      {"vpp2", "roles.trainer.pp=2 roles.trainer.vpp=2"},
      {"zero3", "roles.trainer.zero=3"},
      {"apart", "roles.trainer.ranks='\"0\"' roles.rollout.ranks='\"1\"'"},
      {"tp2",
       "roles.trainer.tp=2 roles.rollout.tp=2 validation.data=data.jsonl validation.every=2 "
       "validation.max_prompts=4"},
      {"tp2cp2", "roles.trainer.cp=2 roles.rollout.tp=2"},
  };
  std::vector<RanksRun> runs;
  for (const auto& [name, keys] : layouts)
    runs.push_back({2, fmt::format("train run.toml run.name={} {}", name, keys)});
  ASSERT_EQ(run_each(runs), 0) << output();
  double preempted = 0;
  for (const auto& [name, keys] : layouts) {
    expect_one_numerics(name);
    for (const Json& line : program_.metrics(name)) preempted += line.value("rollout/preemptions", 0.0);
    EXPECT_EQ(rollouts(name, 1), rollouts("dp2", 1)) << name;
  }
  EXPECT_GT(preempted, 0);
  expect_score_agrees(program_, "vpp2", 3, "model", "");
}

/// Experts of the layers are spread over ranks that share heads, or that have other tokens.
TEST_F(HybridRun, ExpertsOverRanksHaveOneNumerics) {
  ASSERT_EQ(program_.init_model("experts", tiny_hybrid_moe().c_str()), 0) << output();
  const std::string all = "model.path=experts run.steps=2 moe.record_routes=true rollout.prompts_per_step=2";
  const std::vector<std::pair<const char*, const char*>> layouts{
      {"dp2ep1", "roles.trainer.ep=1"},
      {"tp2ep2", "roles.trainer.tp=2 roles.trainer.ep=2 roles.rollout.tp=2 roles.rollout.ep=2"},
      {"dp2ep2", "roles.trainer.ep=2 roles.trainer.zero=3"}};
  std::vector<RanksRun> runs;
  for (const auto& [name, keys] : layouts)
    runs.push_back({2, fmt::format("train run.toml run.name={} {} {}", name, all, keys)});
  ASSERT_EQ(run_each(runs), 0) << output();
  for (const auto& [name, keys] : layouts) {
    expect_one_numerics(name);
    EXPECT_EQ(steps_done(name), 2) << name;
    EXPECT_EQ(rollouts(name, 1), rollouts("dp2ep1", 1)) << name;
    for (const Json& line : program_.metrics(name)) EXPECT_EQ(line.at("moe/routing_mismatch"), 0.0) << name;
  }
  expect_score_agrees(program_, "tp2ep2", 2, "experts", "");
}

/// Responses take several steps and go on with other weights: their states are made again.
TEST_F(HybridRun, ALagAndPartsOfResponses) {
  ASSERT_EQ(run_each({{2,
                       "train run.toml run.max_policy_lag=1 rollout.tokens_per_step=30 run.steps=4 "
                       "roles.trainer.ranks='\"0\"' roles.rollout.ranks='\"1\"'"}}),
            0)
      << output();
  EXPECT_GT(expect_score_agrees(program_, "run", 4, "model", ""), 0);
}

/// The tiny model as the text model of a folder with a vision tower.
class VisionFolder : public HybridRun {
 protected:
  void SetUp() override {
    HybridRun::SetUp();
    Json text = parse_json(kTinyHybrid, "config.json");
    text.erase("architectures");
    const Json whole{{"architectures", {"Qwen3_5ForConditionalGeneration"}},
                     {"model_type", "qwen3_5"},
                     {"text_config", text},
                     {"vision_config", {{"depth", 1}}},
                     {"image_token_id", 12},
                     {"video_token_id", 13},
                     {"tie_word_embeddings", true}};
    ASSERT_EQ(program_.init_model("vision", whole.dump().c_str()), 0) << output();
    program_.write("vision/preprocessor_config.json", "{\"patch_size\": 16}");
    std::map<std::string, std::string> bytes = tensors("vision");
    const SafetensorsFile text_file(program_.path("vision/model.safetensors"), "model.safetensors");
    std::vector<TensorToWrite> all;
    for (const auto& [name, info] : text_file.tensors())
      all.push_back({name, info.dtype, info.shape, [&](OutputFile& file) { file.write(bytes.at(name)); }});
    for (const char* name : {"model.visual.patch_embed.proj.weight", "mtp.fc.weight"})
      all.push_back({name, "BF16", {2, 8}, [](OutputFile& file) { file.write(std::string(32, '*')); }});
    write_safetensors(program_.path("vision/whole"), all);
    std::filesystem::rename(program_.path("vision/whole"), program_.path("vision/model.safetensors"));
  }
  /// Types, shapes and bytes by name.
  std::map<std::string, std::string> tensors(const std::string& folder) const {
    const SafetensorsFile file(program_.path(folder + "/model.safetensors"), "model.safetensors");
    std::map<std::string, std::string> all;
    for (const auto& [name, info] : file.tensors()) {
      std::string& bytes = all[name];
      bytes.resize(static_cast<size_t>(info.end - info.begin));
      file.read(info.begin, std::ssize(bytes), bytes.data());
    }
    return all;
  }
};

TEST_F(VisionFolder, KeepsWhatIsNotTrained) {
  ASSERT_EQ(program_.run("train run.toml model.path=vision run.steps=1 algorithm.entropy_coef=0.5"), 0)
      << output();
  for (const char* kept : {"1 tensors model.visual.* of", "1 tensors mtp.* of"})
    EXPECT_TRUE(logged("run", kept)) << kept;
  const std::string exported = "runs/run/export/" + step_name(1);
  const std::map<std::string, std::string> before = tensors("vision"), after = tensors(exported);
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, bytes] : before)
    EXPECT_EQ(bytes == after.at(name), name.starts_with("model.visual.") || name.starts_with("mtp.")) << name;
  EXPECT_EQ(program_.read("vision/preprocessor_config.json"),
            program_.read(exported + "/preprocessor_config.json"));
  EXPECT_EQ(parse_json(program_.read("vision/config.json"), "before"),
            parse_json(program_.read(exported + "/config.json"), "after"));
}

TEST_F(VisionFolder, APromptWithAnImageIsRefused) {
  program_.write("images.jsonl", R"({"prompt":"What is <|image_pad|> plus 1?","answer":"2"})"
                                 "\n");
  EXPECT_EQ(program_.run("train run.toml model.path=vision data.train=images.jsonl"),
            static_cast<int>(Exit::data));
  EXPECT_TRUE(says("holds an image or a video")) << output();
  EXPECT_TRUE(says("images.jsonl")) << output();
  EXPECT_EQ(program_.run("generate --model vision --prompt '<|video_pad|>'"), static_cast<int>(Exit::data));
  EXPECT_TRUE(says("holds an image or a video")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
