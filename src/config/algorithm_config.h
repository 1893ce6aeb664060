#pragma once
// The `[algorithm]` section: how rollouts become advantages and a loss (interfaces, config keys).
// Plain values with the defaults of `grpo`, and the legal strings of each key in the order users are shown
// them. src/config/methods.h has the rows behind `name`, `advantage` and `loss`; src/rl/registry.h turns the
// section into an Algorithm and refuses illegal values with the key's name.

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

struct AlgorithmConfig {
  std::string name = "grpo";
  std::string advantage = "grpo";
  std::string advantage_std = "group";
  std::string loss = "ppo";
  double clip_low = 0.2;
  double clip_high = 0.2;
  double dual_clip = 0.0;  // 0 = off
  double kl_coef = 0.0;
  std::string kl_in = "loss";
  std::string kl_estimator = "k3";
  std::string aggregation = "token-mean";
  double entropy_coef = 0.0;
  double advantage_eps = 1e-6;
  double gamma = 1.0;
  std::string single_group = "drop";
  bool mask_truncated = false;
  double ratio_clamp = 20.0;  // 0 = off
  bool k3_clamp = false;
  double tis_cap = 2.0;  // 0 = off
  std::string importance = "token";
  std::string importance_form = "truncate";
  std::vector<double> importance_bounds = {};  // lowest, highest; empty: 0, tis_cap
  double reject_mean_k3 = 0.0;            // 0 = off
  double reject_token_below = 0.0;        // 0 = off
  std::string mismatch = "warn";
  double teacher_coef = 1.0;
};

inline constexpr std::array<std::string_view, 2> kKlPlaces{"loss", "reward"};
inline constexpr std::array<std::string_view, 6> kKlEstimators{"k1", "abs", "k2", "k3", "k1+", "k3+"};
inline constexpr std::array<std::string_view, 5> kAggregations{
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-sum"};
inline constexpr std::array<std::string_view, 3> kSingleGroupRules{"drop", "zero", "verl"};
inline constexpr std::array<std::string_view, 3> kAdvantageScales{"group", "batch", "none"};
inline constexpr std::array<std::string_view, 3> kImportanceLevels{"token", "sequence", "geometric"};
inline constexpr std::array<std::string_view, 2> kImportanceForms{"truncate", "mask"};
inline constexpr std::array<std::string_view, 2> kMismatchRules{"warn", "stop"};

}  // namespace temper
