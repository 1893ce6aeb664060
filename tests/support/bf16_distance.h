#pragma once
// How far bf16 log-probs may be from fp64: no farther than those of transformers. tools/golden_bf16.py
// measured them and says how; here are its sequences and its numbers.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/core/json.h"
#include "src/rl/types.h"

namespace temper {

/// The sequences of tools/golden_bf16.py; every token but the first of each is a target.
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

/// Root mean square over their log-probs, of transformers with either of its attentions.
struct TransformersDistance {
  explicit TransformersDistance(const std::string& model) {
    const Json entry = read_json_file("tests/golden/bf16_distance.json").at(model);
    eager = entry.at("eager").get<double>();
    sdpa = entry.at("sdpa").get<double>();
  }
  double eager, sdpa;
  double least() const { return std::min(eager, sdpa); }
};

inline double root_mean_square(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

}  // namespace temper
