#pragma once
// The `[algorithm]` section: how rollouts become advantages and a loss (interfaces, config keys).
// Plain values with their defaults, and the legal strings of each key in the order users are shown them.
// src/rl/registry.h turns it into an Algorithm and refuses illegal values with the key's name.

#include <array>
#include <string>
#include <string_view>

namespace temper {

struct AlgorithmConfig {
  std::string name = "grpo";
  double clip_low = 0.2;
  double clip_high = 0.2;
  double kl_coef = 0.0;
  std::string kl_in = "loss";
  std::string kl_estimator = "k3";
  std::string aggregation = "token-mean";
  double entropy_coef = 0.0;
  double advantage_eps = 1e-6;
  std::string single_group = "drop";
  double ratio_clamp = 20.0;  // 0 = off
  bool k3_clamp = false;
  double tis_cap = 2.0;  // 0 = off
};

/// What the rest of a run has to know of an algorithm. Its code: the row of the same name in rl/registry.cpp,
/// without which this does not compile.
struct AlgorithmTraits {
  std::string_view name;
  bool generates;  // trains on rollouts and their rewards; else on the responses of the data
  bool compares;   // with a reference policy, where kl_coef is not 0
};
inline constexpr std::array kAlgorithms{
    AlgorithmTraits{.name = "grpo", .generates = true, .compares = true},
    AlgorithmTraits{.name = "sft", .generates = false, .compares = false},
};
inline constexpr auto kAlgorithmNames = [] {
  std::array<std::string_view, kAlgorithms.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kAlgorithms[i].name;
  return names;
}();
/// The traits of a legal name; an illegal one is answered elsewhere, and has those of the default.
constexpr const AlgorithmTraits& algorithm_traits(std::string_view name) {
  for (const AlgorithmTraits& traits : kAlgorithms)
    if (traits.name == name) return traits;
  return kAlgorithms.front();
}
inline constexpr std::array<std::string_view, 2> kKlPlaces{"loss", "reward"};
inline constexpr std::array<std::string_view, 6> kKlEstimators{"k1", "abs", "k2", "k3", "k1+", "k3+"};
inline constexpr std::array<std::string_view, 4> kAggregations{
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"};
inline constexpr std::array<std::string_view, 3> kSingleGroupRules{"drop", "zero", "verl"};

}  // namespace temper
