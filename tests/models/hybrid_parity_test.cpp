// Every folder of tests/golden/hybrid/models (tools/golden/golden_hybrid.py) against transformers in fp64:
// log-probs of a packed batch and the gradient of every tensor; and that neither what a sequence is packed
// with nor what is computed again changes a bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "src/io/hf/joined_tensors.h"
#include "src/ops/backend.h"
#include "tests/support/golden_case.h"
#include "tests/support/model_pass.h"

namespace temper {
namespace {

constexpr const char* kModels = "tests/golden/hybrid/models";
constexpr int64_t kContext = 1024;

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kModels))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
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

class HybridParity : public ::testing::TestWithParam<std::string> {
 protected:
  HybridParity()
      : folder_(std::string(kModels) + "/" + GetParam()), golden_(folder_ + "/golden.safetensors") {}

  double logprob_error(Model& model) {
    const std::vector<double> expected = golden_.numbers("logprobs"),
                              logprobs = target_gradients(ctx_, model, sequences_of(golden_),
                                                          golden_.numbers("weights"));
    if (expected.size() != logprobs.size()) return 1;
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(logprobs[i] - expected[i]));
    return worst;
  }
  /// They have in the model the prefix that the config stands for, in the file that of the folder.
  std::string stored_name(const Model& model, const std::string& name) const {
    const std::string stored =
        golden_.has("grad/model.language_model.norm.weight") ? "model.language_model." : "model.";
    const std::string& prefix = model.config().tensor_prefix;
    return "grad/" + (name.starts_with(prefix) ? stored + name.substr(prefix.size()) : name);
  }
  /// The folder may hold the tensor joined with others; `used`: gets what it was read from.
  std::vector<double> golden_gradient(const Model& model, const std::string& name,
                                      std::set<std::string>& used) const {
    const std::string alone = stored_name(model, name);
    if (golden_.has(alone)) {
      used.insert(alone);
      return golden_.numbers(alone);
    }
    std::vector<double> gradient;
    for (const JoinedTensor& joined : grouped_inputs(model.config())) {
      const std::vector<double> all = golden_.numbers(stored_name(model, joined.name));
      auto at = all.begin();
      for (const RowBlock& block : joined.blocks) {
        const auto end = at + block.rows * joined.shape[1];
        if (block.tensor == name) {
          used.insert(stored_name(model, joined.name));
          gradient.resize(
              std::max(gradient.size(), static_cast<size_t>((block.first + block.rows) * joined.shape[1])));
          std::copy(at, end, gradient.begin() + block.first * joined.shape[1]);
        }
        at = end;
      }
    }
    return gradient;
  }
  /// The largest over all tensors.
  double gradient_error(const Model& model, double tolerance) {
    double worst = 0;
    std::set<std::string> compared;
    for (const Parameter& p : model.parameters().list()) {
      const int64_t row = p.value.size() / p.value.dim(0);
      const std::vector<double> gradient = to_host<double>(ctx_, p.grad);
      int64_t first = 0;
      for (const HfPart& tensor : tensors_of(p.spec)) {
        const std::string& name = tensor.name;
        const std::vector<double> expected = golden_gradient(model, name, compared);
        EXPECT_EQ(std::ssize(expected), tensor.rows * row) << name;
        const double error = relative_error(gradient, first, expected);
        EXPECT_LE(error, tolerance) << name;
        worst = std::max(worst, error);
        first += tensor.rows * row;
      }
    }
    constexpr size_t kOtherTensors = 6;  // tokens, cu_seqlens, logprobs, weights, greedy_prompt, greedy
    EXPECT_EQ(compared.size() + kOtherTensors, golden_.size());
    return worst;
  }

  std::string folder_;
  GoldenFile golden_;
  Backend backend_{Device::cpu};
  Ctx& ctx_ = backend_.ctx();
};

/// In fp64 both are the same function but for the angles of rope, which are of fp32; in fp32 as far as it
/// goes.
TEST_P(HybridParity, LogprobsAndGradients) {
  for (const auto& [dtype, logprob, gradient] :
       {std::tuple{DType::f64, 1e-7, 1e-7}, {DType::f32, 2e-5, 1e-4}}) {
    const auto model = load_model(folder_, dtype, kContext);
    const double logprob_off = logprob_error(*model), gradient_off = gradient_error(*model, gradient);
    EXPECT_LE(logprob_off, logprob) << dtype_name(dtype);
    std::printf("%-24s %s: log-prob error %.1e, gradient error %.1e\n", GetParam().c_str(), dtype_name(dtype),
                logprob_off, gradient_off);
  }
}

TEST_P(HybridParity, PackedSequencesHaveTheBitsOfEachAlone) {
  const std::vector<Trajectory> sequences = sequences_of(golden_);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto model = load_model(folder_, dtype, kContext);
    const std::vector<double> packed = target_logprobs(ctx_, *model, sequences);
    std::vector<double> alone;
    for (const Trajectory& t : sequences)
      for (const double x : target_logprobs(ctx_, *model, {t})) alone.push_back(x);
    EXPECT_EQ(packed, alone);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HybridParity, ::testing::ValuesIn(model_names()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// What backward computes again is what forward had.
TEST(HybridRecompute, GradientsHaveTheSameBits) {
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  const std::string folder = std::string(kModels) + "/text-tied-interval2";
  const GoldenFile golden(folder + "/golden.safetensors");
  const std::vector<Trajectory> sequences = sequences_of(golden);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto model = load_model(folder, dtype, kContext);
    std::vector<std::vector<double>> all;
    for (const RecomputePlan plan :
         {RecomputePlan{}, RecomputePlan{Recompute::selective}, RecomputePlan{Recompute::full},
          RecomputePlan{Recompute::full, false, 3}}) {
      target_gradients(c, *model, sequences, golden.numbers("weights"), plan);
      std::vector<double>& gradients = all.emplace_back();
      for (const Parameter& p : model->parameters().list())
        for (const double x : to_host<double>(c, p.grad)) gradients.push_back(x);
    }
    for (size_t i = 1; i < all.size(); ++i)
      EXPECT_EQ(all[i] == all[0], true) << dtype_name(dtype) << " " << i;
  }
}

TEST(HybridModels, AreAllThere) { EXPECT_GE(model_names().size(), 12u); }

/// What decides how long a state lasts is not rounded in a model of bf16.
TEST(HybridModels, WideParametersAreWideInANarrowStore) {
  const std::string folder = std::string(kModels) + "/vision-tied-bf16";
  const auto narrow = load_model(folder, DType::bf16, kContext),
             exact = load_model(folder, DType::f32, kContext);
  Backend backend(Device::cpu);
  size_t wide = 0;
  for (size_t i = 0; i < narrow->parameters().list().size(); ++i) {
    const Parameter &p = narrow->parameters().list()[i], &q = exact->parameters().list()[i];
    EXPECT_EQ(p.value.dtype, p.spec.wide ? DType::f32 : DType::bf16) << p.spec.name;
    if (!p.spec.wide) continue;
    ++wide;
    EXPECT_EQ(to_host<double>(backend.ctx(), p.value), to_host<double>(backend.ctx(), q.value))
        << p.spec.name;
  }
  EXPECT_EQ(wide, 2u);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
