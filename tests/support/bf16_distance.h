#pragma once
// How far bf16 log-probs may be from fp64: no farther than those of transformers. tools/golden/golden_bf16.py
// measured them and says how; here are its sequences and its numbers.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/core/json.h"
#include "src/nn/model_config.h"
#include "src/rl/types.h"

namespace temper {

/// The sequences of tools/golden/golden_bf16.py; every token but the first of each is a target.
inline std::vector<Trajectory> bf16_sequences(int64_t vocab_size) {
  constexpr uint32_t kSequences = 512, kLength = 64;
  std::vector<Trajectory> list(kSequences);
  for (uint32_t i = 0; i < kSequences * kLength; ++i) {
    const auto id =
        static_cast<int32_t>(((i * 2654435761u + 12345u) >> 16) % static_cast<uint32_t>(vocab_size));
    Trajectory& t = list[i / kLength];
    (i % kLength == 0 ? t.prompt_tokens : t.response.tokens).push_back(id);
  }
  return list;
}

/// The first of them, whose log-probs gradients are made of, and the weight of each of those.
inline constexpr size_t kGradientSequences = 128;
inline std::vector<double> gradient_weights() {
  constexpr uint32_t kTargets = kGradientSequences * 63;
  std::vector<double> weights;
  for (uint32_t i = 0; i < kTargets; ++i) weights.push_back(((i * 2246822519u + 1u) >> 16) / 32768.0 - 1);
  return weights;
}

/// How far transformers is off with either of its attentions: the root mean square over their log-probs, or
/// the distance of the whole gradient as a share of its norm (`of` = "gradient ").
struct TransformersDistance {
  explicit TransformersDistance(const std::string& model, const std::string& of = "") {
    const Json entry = read_json_file("tests/golden/bf16_distance.json").at(model);
    eager = entry.at(of + "eager").get<double>();
    sdpa = entry.at(of + "sdpa").get<double>();
  }
  double eager, sdpa;
  double least() const { return std::min(eager, sdpa); }
  /// The nearer of its two ways bounds ours. With experts a choice that another rounding turns counts most,
  /// and which are turned is chance: a quarter more than the farther one.
  double bound(const ModelConfig& model) const {
    return model.moe.layers.empty() ? least() : 1.25 * std::max(eager, sdpa);
  }
};

inline double root_mean_square(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

}  // namespace temper
