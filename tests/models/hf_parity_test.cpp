// Every folder of tests/golden/models and tests/golden/moe/models (tools/golden/golden.py, golden_moe.py)
// against transformers in fp32: log-probs of a packed batch, the gradient of every tensor, and 64 greedy
// tokens through the rollout engine.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "src/ops/backend.h"
#include "src/ops/rows.h"
#include "src/rollout/engine.h"
#include "src/train/token_pass.h"
#include "tests/support/bf16_distance.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_case.h"
#include "tests/support/model_pass.h"

namespace temper {
namespace {

constexpr const char *kModels = "tests/golden/models", *kMoeModels = "tests/golden/moe/models";
constexpr int64_t kContext = 128;
constexpr double kLogprobTolerance = 2e-5, kGradientTolerance = 1e-4;

/// Attention through a window is refused.
bool has_window(const std::string& name) { return name.find("-window") != std::string::npos; }

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const char* folder : {kModels, kMoeModels})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (const std::string name = entry.path().filename(); !has_window(name)) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string folder_of(const std::string& name) {
  const std::string dense = std::string(kModels) + "/" + name;
  return path_exists(dense) ? dense : std::string(kMoeModels) + "/" + name;
}

/// Every token of a sequence but the first is a target.
std::vector<Trajectory> sequences_of(const GoldenFile& golden) {
  const std::vector<int32_t> tokens = golden.integers("tokens"), ends = golden.integers("cu_seqlens");
  std::vector<Trajectory> sequences;
  for (size_t s = 0; s + 1 < ends.size(); ++s) {
    Trajectory t;
    t.prompt_tokens = {tokens[static_cast<size_t>(ends[s])]};
    t.response.tokens.assign(tokens.begin() + ends[s] + 1, tokens.begin() + ends[s + 1]);
    sequences.push_back(std::move(t));
  }
  return sequences;
}

class HfParity : public ::testing::TestWithParam<std::string> {
 protected:
  HfParity()
      : folder_(folder_of(GetParam())),
        golden_(folder_ + "/golden.safetensors"),
        model_(load_model(folder_, DType::f32, kContext)) {}

  std::string folder_;
  GoldenFile golden_;
  std::unique_ptr<Model> model_;
  Backend backend_{Device::cpu};
  Ctx& ctx_ = backend_.ctx();
};

TEST_P(HfParity, LogprobsAndGradients) {
  const std::vector<Trajectory> sequences = sequences_of(golden_);
  const std::vector<double> expected = golden_.numbers("logprobs"),
                            logprobs = target_gradients(ctx_, *model_, sequences, golden_.numbers("weights"));
  ASSERT_EQ(expected.size(), logprobs.size());
  double worst_logprob = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    worst_logprob = std::max(worst_logprob, std::abs(logprobs[i] - expected[i]));
  EXPECT_LE(worst_logprob, kLogprobTolerance);

  double worst_gradient = 0;
  const size_t compared =
      compare_gradients(ctx_, model_->parameters(), golden_, "grad/", kGradientTolerance, worst_gradient);
  constexpr size_t kOtherTensors = 6;  // tokens, cu_seqlens, logprobs, weights, greedy_prompt, greedy
  EXPECT_EQ(compared + kOtherTensors, golden_.size());
  std::printf("%-24s log-prob error %.1e, gradient error %.1e (%zu tensors)\n", GetParam().c_str(),
              worst_logprob, worst_gradient, compared);
}

TEST_P(HfParity, GreedyTokens) {
  const std::vector<int32_t> expected = golden_.integers("greedy");
  EngineOptions cache;
  cache.num_pages = kContext / cache.page_tokens;
  Engine engine(*model_, cache, ctx_.lane);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = static_cast<int64_t>(expected.size());
  options.num_sampleable = model_->config().vocab_size;
  const Request request{.prompt = golden_.integers("greedy_prompt")};
  std::vector<int32_t> tokens;
  engine.generate(ctx_, std::span(&request, 1), options, nullptr,
                  [&](size_t, std::vector<Response> samples) { tokens = samples.at(0).tokens; });
  ASSERT_EQ(expected.size(), 64u);
  EXPECT_EQ(tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(Models, HfParity, ::testing::ValuesIn(model_names()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// The same weights in the form that transformers 5 holds them in.
TEST(HfParityFused, LogprobsAreThoseOfSingleExperts) {
  Backend backend(Device::cpu);
  for (const std::string name : {"qwen3-moe-default", "qwen2-moe-default", "mixtral-default"}) {
    const GoldenFile golden(folder_of(name) + "/golden.safetensors");
    const auto logprobs = [&](const std::string& folder) {
      return target_gradients(backend.ctx(), *load_model(folder, DType::f32, kContext), sequences_of(golden),
                              golden.numbers("weights"));
    };
    EXPECT_EQ(logprobs("tests/golden/moe/fused/" + name), logprobs(folder_of(name))) << name;
  }
}

/// bf16 is no farther from fp64 than transformers in bf16. One model of each family; all of them are compared
/// on a GPU.
TEST(HfParityBf16, IsNoFartherFromFp64ThanTransformers) {
  for (const std::string name : {"llama-default", "llama-longrope-short", "qwen2-default", "qwen3-default",
                                 "qwen2-moe-default", "qwen3-moe-default", "mixtral-default"}) {
    const auto logprobs = [&](DType dtype) {
      const auto model = load_model(folder_of(name), dtype, kContext);
      const std::vector<Trajectory> sequences = bf16_sequences(model->config().vocab_size);
      Backend backend(Device::cpu);
      return target_logprobs(backend.ctx(), *model, sequences);
    };
    const TransformersDistance theirs(name);
    const double ours = root_mean_square(logprobs(DType::bf16), logprobs(DType::f64));
    EXPECT_LE(ours, theirs.bound(load_model(folder_of(name), DType::f32, kContext)->config())) << name;
    std::printf("%-24s bf16 to fp64 %.5f; transformers %.5f (sdpa), %.5f (eager)\n", name.c_str(), ours,
                theirs.sdpa, theirs.eager);
  }
}

TEST(HfParityModels, AreAllThere) { EXPECT_GE(model_names().size(), 28u); }

TEST(HfParityModels, WindowsOfExpertsAreRefused) {
  const auto config_of = [](const std::string& name) {
    const ModelFolder folder = ModelFolder::open(folder_of(name));
    return parse_model_config(folder.config(), nullptr, folder.config_path());
  };
  expect_error(Exit::data, {"use_sliding_window", "sliding_window 6"}, "by a flag",
               [&] { config_of("qwen3-moe-window"); });
  expect_error(Exit::data, {"sliding_window 6", "to null"}, "set", [&] { config_of("mixtral-window-v4"); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
