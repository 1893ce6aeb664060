#pragma once
// Golden safetensors files read as doubles, a model built from a folder, and the comparison of its gradients
// with golden ones by Hugging Face tensor: a fused parameter is compared part by part.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "src/core/file.h"
#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_import.h"
#include "src/io/hf/model_folder.h"
#include "src/io/hf/safetensors.h"
#include "src/models/model.h"

namespace temper {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) : file_(path, path) {}

  bool has(const std::string& name) const { return file_.tensors().count(name) > 0; }
  size_t size() const { return file_.tensors().size(); }
  std::vector<double> numbers(const std::string& name) const {
    const TensorInfo& info = at(name);
    if (info.dtype == "F32") return read<float>(info);
    if (info.dtype == "F64") return read<double>(info);
    ADD_FAILURE() << name << " is " << info.dtype;
    return {};
  }
  std::vector<int32_t> integers(const std::string& name) const {
    const TensorInfo& info = at(name);
    EXPECT_EQ(info.dtype, "I32") << name;
    std::vector<int32_t> values(static_cast<size_t>(info.num_elements()));
    file_.read(info.begin, info.end - info.begin, values.data());
    return values;
  }

 private:
  const TensorInfo& at(const std::string& name) const {
    CHECK(has(name), "golden file without {}", name);
    return file_.tensors().at(name);
  }
  template <class T>
  std::vector<double> read(const TensorInfo& info) const {
    std::vector<T> raw(static_cast<size_t>(info.num_elements()));
    file_.read(info.begin, info.end - info.begin, raw.data());
    return {raw.begin(), raw.end()};
  }

  SafetensorsFile file_;
};

inline std::unique_ptr<Model> load_model(const std::string& path, DType storage, int64_t context_tokens,
                                         Device device = Device::cpu) {
  ModelFolder folder = ModelFolder::open(path);
  const ModelConfig config =
      parse_model_config(folder.config(), folder.generation_config() ? &*folder.generation_config() : nullptr,
                         folder.config_path());
  auto model =
      std::make_unique<Model>(config, ModelOptions{storage, context_tokens, /*with_gradients=*/true, device});
  folder.match_names(config);
  import_weights(folder, config, model->parameters());
  return model;
}

/// |actual - expected| / |expected| over the elements from `first` on; zeros (of an expert that no token
/// chose) are zeros.
inline double relative_error(const std::vector<double>& actual, int64_t first,
                             const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = actual[static_cast<size_t>(first) + i] - expected[i];
    difference += d * d;
    norm += expected[i] * expected[i];
  }
  return norm == 0 ? (difference == 0 ? 0.0 : 1.0) : std::sqrt(difference / norm);
}

/// Compares all gradients with tensors prefix + Hugging Face name; returns the number of compared tensors and
/// raises `worst` to the largest error.
inline size_t compare_gradients(const Ctx& c, const ParameterStore& parameters, const GoldenFile& golden,
                                const std::string& prefix, double tolerance, double& worst) {
  size_t compared = 0;
  for (const Parameter& p : parameters.list()) {
    const int64_t row = p.value.size() / p.value.dim(0);
    const std::vector<double> gradient = to_host<double>(c, p.grad);
    int64_t first = 0;
    for (const HfPart& part : tensors_of(p.spec)) {
      const std::vector<double> expected = golden.numbers(prefix + part.name);
      if (static_cast<int64_t>(expected.size()) != part.rows * row) {
        ADD_FAILURE() << part.name << ": " << expected.size() << " golden values for " << part.rows * row;
        return compared;
      }
      const double error = relative_error(gradient, first, expected);
      EXPECT_LE(error, tolerance) << part.name;
      worst = std::max(worst, error);
      first += part.rows * row;
      ++compared;
    }
    EXPECT_EQ(first, p.value.size()) << p.spec.name;
  }
  return compared;
}

}  // namespace temper
