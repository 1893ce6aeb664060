// The cases of tests/golden/lora on the GPU: log-probs and gradients against PEFT in fp32, and in bf16
// decoding with the bits of the packed pass.

#include "src/rollout/engine.h"
#include "tests/gpu/gpu_support.h"
#include "tests/support/lora_case.h"

namespace temper {
namespace {

class GpuLoraParity : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Adapted on_cpu(GetParam());
    if (const std::string defect = shape_defect(on_cpu.config, Device::cuda); !defect.empty())
      GTEST_SKIP() << defect;
  }
  Backend backend_{Device::cuda};
};

TEST_P(GpuLoraParity, LogprobsAndGradients) {
  const Adapted adapted(GetParam(), DType::f32, Device::cuda);
  const std::vector<double> logprobs = target_gradients(
      backend_.ctx(), *adapted.model, sequences_of(adapted.golden), adapted.golden.numbers("weights"));
  EXPECT_LE(worst_difference(logprobs, adapted.golden.numbers("logprobs")), 2e-5);
  EXPECT_LE(worst_gradient_error(backend_.ctx(), adapted), 1e-4);
}

TEST_P(GpuLoraParity, DecodingHasTheBitsOfThePackedPass) {
  const Adapted adapted(GetParam(), DType::bf16, Device::cuda);
  Ctx& c = backend_.ctx();
  EngineOptions cache;
  cache.num_pages = 4 * kLoraContext / cache.page_tokens;
  Engine engine(*adapted.model, cache, c.lane);
  GenerateOptions options;
  options.max_new_tokens = 64;
  options.num_sampleable = adapted.config.vocab_size;
  const std::vector<int32_t> tokens = adapted.golden.integers("tokens");
  const Request request{.prompt = {tokens.begin(), tokens.begin() + 9}, .num_samples = 3};
  std::vector<Trajectory> sequences;
  std::vector<double> sampled;
  engine.generate(c, std::span(&request, 1), options, nullptr, [&](size_t, std::vector<Response> samples) {
    for (Response& response : samples) {
      Trajectory& t = sequences.emplace_back();
      t.prompt_tokens = request.prompt;
      sampled.insert(sampled.end(), response.logprobs.begin(), response.logprobs.end());
      t.response.tokens = std::move(response.tokens);
    }
  });
  EXPECT_EQ(sampled, target_logprobs(c, *adapted.model, sequences));
}

INSTANTIATE_TEST_SUITE_P(Cases, GpuLoraParity, ::testing::ValuesIn(kLoraCases), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
