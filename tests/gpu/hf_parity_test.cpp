// Every folder of tests/golden/models on the GPU: log-probs against transformers in fp32, greedy tokens, and
// the distance of bf16 log-probs to the CPU in fp64.

#include <algorithm>
#include <filesystem>

#include "src/rollout/engine.h"
#include "src/train/token_pass.h"
#include "tests/gpu/gpu_support.h"
#include "tests/support/golden_case.h"

namespace temper {
namespace {

constexpr const char* kModels = "tests/golden/models";
constexpr int64_t kContext = 128;
constexpr double kTolerance = 2e-5;

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kModels))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class GpuHfParity : public ::testing::TestWithParam<std::string> {
 protected:
  GpuHfParity() : folder_(std::string(kModels) + "/" + GetParam()), golden_(folder_ + "/golden.safetensors") {
    const std::vector<int32_t> tokens = golden_.integers("tokens"), ends = golden_.integers("cu_seqlens");
    for (size_t s = 0; s + 1 < ends.size(); ++s) {
      Trajectory t;
      t.prompt_tokens = {tokens[static_cast<size_t>(ends[s])]};
      t.response_tokens.assign(tokens.begin() + ends[s] + 1, tokens.begin() + ends[s + 1]);
      sequences_.push_back(std::move(t));
    }
  }

  std::vector<double> logprobs(Device device, DType dtype) {
    const auto model = load_model(folder_, dtype, kContext, device);
    Backend backend(device);
    Ctx& c = backend.ctx();
    std::vector<const Trajectory*> all;
    std::vector<int32_t> order;
    for (const Trajectory& t : sequences_) {
      order.push_back(static_cast<int32_t>(all.size()));
      all.push_back(&t);
    }
    const Microbatch mb = pack(all, order);
    const Tensor hidden = target_hidden(c, *model, mb, nullptr);
    const CTensor targets = to_device(c, view_of(mb.targets.data(), {hidden.dim(0)}));
    return to_host<double>(c, model->head().forward(c, hidden, targets, 1.0).logprob);
  }

  std::string folder_;
  GoldenFile golden_;
  std::vector<Trajectory> sequences_;
};

/// Root mean square and largest difference.
std::pair<double, double> distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0, most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    squares += (a[i] - b[i]) * (a[i] - b[i]);
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return {std::sqrt(squares / static_cast<double>(a.size())), most};
}

TEST_P(GpuHfParity, Logprobs) {
  const std::vector<double> expected = golden_.numbers("logprobs"), exact = logprobs(Device::cpu, DType::f64);
  const std::vector<double> fp32 = logprobs(Device::cuda, DType::f32);
  ASSERT_EQ(fp32.size(), expected.size());
  EXPECT_LE(distance(fp32, expected).second, kTolerance);
  const auto gpu = distance(logprobs(Device::cuda, DType::bf16), exact);
  const auto cpu = distance(logprobs(Device::cpu, DType::bf16), exact);
  EXPECT_LE(gpu.first, 1.5 * cpu.first + 1e-6);
  std::printf("%-24s fp32 %.1e, bf16 rms %.1e (CPU backend %.1e), most %.1e (%.1e)\n", GetParam().c_str(),
              distance(fp32, expected).second, gpu.first, cpu.first, gpu.second, cpu.second);
}

TEST_P(GpuHfParity, GreedyTokens) {
  const std::vector<int32_t> expected = golden_.integers("greedy");
  const auto model = load_model(folder_, DType::f32, kContext, Device::cuda);
  Backend gpu(Device::cuda);
  EngineOptions cache;
  cache.num_pages = kContext / cache.page_tokens;
  Engine engine(*model, cache);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = static_cast<int64_t>(expected.size());
  options.num_sampleable = model->config().vocab_size;
  const Request request{.prompt = golden_.integers("greedy_prompt")};
  std::vector<int32_t> tokens;
  engine.generate(gpu.ctx(), std::span(&request, 1), options, nullptr,
                  [&](size_t, std::vector<Completion> samples) { tokens = samples.at(0).tokens; });
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
