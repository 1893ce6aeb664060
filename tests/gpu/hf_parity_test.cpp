// Every folder of tests/golden/models and tests/golden/moe/models on the GPU: log-probs and gradients against
// transformers in fp32, greedy tokens, and the distance of bf16 log-probs and gradients to fp64, which is to
// be no larger than that of transformers in bf16 (tools/golden/golden_bf16.py says how it is measured).

#include <algorithm>
#include <filesystem>

#include "src/rollout/engine.h"
#include "src/train/token_pass.h"
#include "tests/gpu/gpu_support.h"
#include "tests/support/bf16_distance.h"
#include "tests/support/golden_case.h"
#include "tests/support/model_pass.h"

namespace temper {
namespace {

constexpr const char *kModels = "tests/golden/models", *kMoeModels = "tests/golden/moe/models";
constexpr int64_t kContext = 128;
constexpr double kTolerance = 2e-5, kGradientTolerance = 1e-4;

/// Some have heads that no kernel takes, or look back through a window.
bool is_supported(const std::string& path) {
  try {
    const ModelFolder folder = ModelFolder::open(path);
    return shape_defect(parse_model_config(folder.config(), nullptr, path), Device::cuda).empty();
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const char* folder : {kModels, kMoeModels})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (is_supported(entry.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string folder_of(const std::string& name) {
  const std::string dense = std::string(kModels) + "/" + name;
  return path_exists(dense) ? dense : std::string(kMoeModels) + "/" + name;
}

class GpuHfParity : public ::testing::TestWithParam<std::string> {
 protected:
  GpuHfParity() : folder_(folder_of(GetParam())), golden_(folder_ + "/golden.safetensors") {
    const std::vector<int32_t> tokens = golden_.integers("tokens"), ends = golden_.integers("cu_seqlens");
    for (size_t s = 0; s + 1 < ends.size(); ++s) {
      Trajectory t;
      t.prompt_tokens = {tokens[static_cast<size_t>(ends[s])]};
      t.response.tokens.assign(tokens.begin() + ends[s] + 1, tokens.begin() + ends[s + 1]);
      sequences_.push_back(std::move(t));
    }
  }

  std::vector<double> logprobs(Device device, DType dtype) { return logprobs(device, dtype, sequences_); }
  std::vector<double> logprobs(Device device, DType dtype, const std::vector<Trajectory>& sequences) {
    const auto model = load_model(folder_, dtype, kContext, device);
    Backend backend(device);
    return target_logprobs(backend.ctx(), *model, sequences);
  }

  std::string folder_;
  GoldenFile golden_;
  std::vector<Trajectory> sequences_;
};

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

/// No more than the two with heads of 4 and the two with windows are left out.
TEST(GpuHfParityModels, AreAllThere) { EXPECT_GE(model_names().size(), 32u); }

TEST_P(GpuHfParity, Logprobs) {
  const std::vector<double> expected = golden_.numbers("logprobs");
  const std::vector<double> fp32 = logprobs(Device::cuda, DType::f32);
  ASSERT_EQ(fp32.size(), expected.size());
  EXPECT_LE(largest_difference(fp32, expected), kTolerance);
  std::printf("%-24s fp32 %.1e\n", GetParam().c_str(), largest_difference(fp32, expected));
}

TEST_P(GpuHfParity, Bf16IsNoFartherFromFp64ThanTransformers) {
  const TransformersDistance theirs(GetParam());
  const ModelConfig config = load_model(folder_, DType::f32, kContext)->config();
  const std::vector<Trajectory> sequences = bf16_sequences(config.vocab_size);
  const std::vector<double> exact = logprobs(Device::cpu, DType::f64, sequences);
  const double ours = root_mean_square(logprobs(Device::cuda, DType::bf16, sequences), exact);
  EXPECT_LE(ours, theirs.bound(config));
  std::printf("%-24s bf16 to fp64, rms of %zu log-probs: %.5f; transformers %.5f (sdpa), %.5f (eager)\n",
              GetParam().c_str(), exact.size(), ours, theirs.sdpa, theirs.eager);
}

TEST_P(GpuHfParity, Gradients) {
  const auto model = load_model(folder_, DType::f32, kContext, Device::cuda);
  Backend gpu(Device::cuda);
  target_gradients(gpu.ctx(), *model, sequences_, golden_.numbers("weights"));
  double worst = 0;
  const size_t compared =
      compare_gradients(gpu.ctx(), model->parameters(), golden_, "grad/", kGradientTolerance, worst);
  EXPECT_GT(compared, 0u);
  std::printf("%-24s fp32, gradients of %zu tensors %.1e\n", GetParam().c_str(), compared, worst);
}

/// The distance is that of the whole gradient, as a share of its norm.
TEST_P(GpuHfParity, Bf16GradientsAreNoFartherFromFp64ThanTransformers) {
  const TransformersDistance theirs(GetParam(), "gradient ");
  const auto gradient = [&](Device device, DType dtype) {
    const auto model = load_model(folder_, dtype, kContext, device);
    Backend backend(device);
    std::vector<Trajectory> sequences = bf16_sequences(model->config().vocab_size);
    sequences.resize(kGradientSequences);
    const Ctx& c = backend.ctx();
    target_gradients(backend.ctx(), *model, sequences, gradient_weights());
    std::vector<double> all;
    for (const Parameter& p : model->parameters().list()) {
      const std::vector<double> values = to_host<double>(c, p.grad);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const std::vector<double> exact = gradient(Device::cpu, DType::f64);
  const double ours = relative_error(gradient(Device::cuda, DType::bf16), 0, exact);
  EXPECT_LE(ours, theirs.bound(load_model(folder_, DType::f32, kContext)->config()));
  std::printf("%-24s bf16 to fp64, gradient %.5f of its norm; transformers %.5f (sdpa), %.5f (eager)\n",
              GetParam().c_str(), ours, theirs.sdpa, theirs.eager);
}

TEST_P(GpuHfParity, GreedyTokens) {
  const std::vector<int32_t> expected = golden_.integers("greedy");
  const auto model = load_model(folder_, DType::f32, kContext, Device::cuda);
  Backend gpu(Device::cuda);
  EngineOptions cache;
  cache.num_pages = kContext / cache.page_tokens;
  Engine engine(*model, cache, gpu.ctx().lane);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = static_cast<int64_t>(expected.size());
  options.num_sampleable = model->config().vocab_size;
  const Request request{.prompt = golden_.integers("greedy_prompt")};
  std::vector<int32_t> tokens;
  engine.generate(gpu.ctx(), std::span(&request, 1), options, nullptr,
                  [&](size_t, std::vector<Response> samples) { tokens = samples.at(0).tokens; });
  EXPECT_EQ(tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuHfParity, ::testing::ValuesIn(model_names()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
