#pragma once
// A folder of tests/golden/hybrid/models (tools/golden/golden_hybrid.py) beside transformers: log-probs of a
// packed batch and the gradient of every tensor, on a device.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "src/io/hf/joined_tensors.h"
#include "src/ops/backend.h"
#include "tests/support/golden_case.h"
#include "tests/support/model_pass.h"

namespace temper {

inline constexpr const char* kModels = "tests/golden/hybrid/models";
inline constexpr int64_t kContext = 1024;

inline std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kModels))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// Every token of a sequence but the first is a target.
inline std::vector<Trajectory> sequences_of(const GoldenFile& golden) {
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
  explicit HybridParity(Device device = Device::cpu)
      : folder_(std::string(kModels) + "/" + GetParam()),
        golden_(folder_ + "/golden.safetensors"),
        backend_(device) {}

  std::unique_ptr<Model> load(DType dtype) { return load_model(folder_, dtype, kContext, ctx_.device); }
  void expect_golden(DType dtype, double logprob, double gradient) {
    const auto model = load(dtype);
    const double logprob_off = logprob_error(*model), gradient_off = gradient_error(*model, gradient);
    EXPECT_LE(logprob_off, logprob) << dtype_name(dtype);
    std::printf("%-24s %s: log-prob error %.1e, gradient error %.1e\n", GetParam().c_str(), dtype_name(dtype),
                logprob_off, gradient_off);
  }
  void expect_packed_bits_of_each_alone() {
    const std::vector<Trajectory> sequences = sequences_of(golden_);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto model = load(dtype);
      const std::vector<double> packed = target_logprobs(ctx_, *model, sequences);
      std::vector<double> alone;
      for (const Trajectory& t : sequences)
        for (const double x : target_logprobs(ctx_, *model, {t})) alone.push_back(x);
      EXPECT_EQ(packed, alone);
    }
  }

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
  Backend backend_;
  Ctx& ctx_ = backend_.ctx();
};

/// For INSTANTIATE_TEST_SUITE_P.
inline std::string test_name(const ::testing::TestParamInfo<std::string>& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace temper
