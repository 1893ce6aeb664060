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
  double tis_cap = 2.0;       // 0 = off
};

inline constexpr std::array<std::string_view, 2> kAlgorithmNames{"grpo", "sft"};
inline constexpr std::array<std::string_view, 2> kKlPlaces{"loss", "reward"};
inline constexpr std::array<std::string_view, 6> kKlEstimators{"k1", "abs", "k2", "k3", "k1+", "k3+"};
inline constexpr std::array<std::string_view, 4> kAggregations{
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"};
inline constexpr std::array<std::string_view, 3> kSingleGroupRules{"drop", "zero", "verl"};

}  // namespace temper
