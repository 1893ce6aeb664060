#pragma once
// Low-rank adapters of linear layers (Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021):
//   y = x W^T + scale (x A^T) B^T      A [rank, in]   B [out, rank]
// beside weights W that nothing trains. What Hugging Face has as modules of their own (q, k and v, gate and
// up) has adapters of its own.

#include <cmath>
#include <cstdint>
#include <set>
#include <string>

namespace temper {

struct AdapterConfig {
  int64_t rank = 0;  // 0: none
  double alpha = 0;
  bool rslora = false;                 // the scale is alpha / sqrt(rank) instead of alpha / rank
  std::set<std::string> targets = {};  // modules, as Hugging Face calls them: "q_proj"

  bool on() const { return rank > 0; }
  double scale() const {
    const auto r = static_cast<double>(rank);
    return alpha / (rslora ? std::sqrt(r) : r);
  }
  bool operator==(const AdapterConfig&) const = default;
};

}  // namespace temper
