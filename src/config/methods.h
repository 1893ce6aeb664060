#pragma once
// The methods that people run, as rows: the names of algorithm.name with the defaults that they change, and
// the parts that algorithm.advantage and algorithm.loss choose. Config, check and help read these rows; the
// code of a part is the row of the same name in rl/advantages/advantage.h or rl/losses/policy_loss.h, without
// which those do not compile. Symbols: R reward of a response; mean_g, std_g over its group; lp, lo, lb
// log-prob of a token under the policy, under the weights that the ratio starts at, and under those that
// sampled; r = exp(lp - lo).

#include <array>
#include <span>
#include <string_view>

namespace temper {

/// A default that a name changes: a key of the config, and its value as TOML.
struct MethodDefault {
  std::string_view key, value;
};

/// What the rest of a run has to know of an algorithm.
struct AlgorithmTraits {
  std::string_view name;
  bool generates;  // trains on rollouts and their rewards; else on the responses of the data
  bool compares;   // with a reference policy, where kl_coef is not 0
  std::string_view source;
  std::span<const MethodDefault> defaults = {};
};

struct LossTraits {
  std::string_view name, formula, source;
  bool clips;       // reads clip_low and clip_high
  bool dual_clips;  // reads dual_clip
  bool clamps;      // reads ratio_clamp
};

/// What an advantage makes of a group with one reward.
enum class LoneSample {
  by_rule,  // as algorithm.single_group says
  nothing,  // 0: it compares samples
  itself,   // it compares no samples of a group
};

struct AdvantageTraits {
  std::string_view name, formula, source;
  LoneSample lone;
  bool scales;     // reads advantage_std and advantage_eps
  bool discounts;  // reads gamma
  bool by_token;   // takes the KL in the reward token by token
  bool by_part;    // takes the parts of the reward, not their sum
};

namespace methods {

inline constexpr MethodDefault kDrGrpo[] = {{"algorithm.advantage_std", "\"none\""},
                                            {"algorithm.aggregation", "\"seq-mean-token-sum-norm\""}};
inline constexpr MethodDefault kDapo[] = {{"algorithm.clip_high", "0.28"},
                                          {"rollout.dynamic_sampling_rounds", "10"}};
inline constexpr MethodDefault kGspo[] = {{"algorithm.loss", "\"gspo\""},
                                          {"algorithm.clip_low", "3e-4"},
                                          {"algorithm.clip_high", "4e-4"},
                                          {"algorithm.aggregation", "\"seq-mean-token-mean\""}};
inline constexpr MethodDefault kCispo[] = {
    {"algorithm.loss", "\"cispo\""}, {"algorithm.clip_low", "1.0"}, {"algorithm.clip_high", "4.0"}};
inline constexpr MethodDefault kRloo[] = {{"algorithm.advantage", "\"rloo\""},
                                          {"algorithm.kl_in", "\"reward\""},
                                          {"algorithm.kl_estimator", "\"k1\""}};
inline constexpr MethodDefault kReinforce[] = {{"algorithm.advantage", "\"reinforce++\""},
                                               {"algorithm.kl_in", "\"reward\""},
                                               {"algorithm.kl_estimator", "\"k1\""}};
inline constexpr MethodDefault kReinforceBaseline[] = {{"algorithm.advantage", "\"reinforce++-baseline\""},
                                                       {"algorithm.kl_estimator", "\"k2\""}};

}  // namespace methods

inline constexpr std::array kAlgorithms{
    AlgorithmTraits{"grpo", true, true, "DeepSeekMath, arXiv 2402.03300"},
    AlgorithmTraits{"dr.grpo", true, true, "arXiv 2503.20783", methods::kDrGrpo},
    AlgorithmTraits{"dapo", true, true, "arXiv 2503.14476", methods::kDapo},
    AlgorithmTraits{"gspo", true, true, "arXiv 2507.18071", methods::kGspo},
    AlgorithmTraits{"cispo", true, true, "MiniMax-M1, arXiv 2506.13585", methods::kCispo},
    AlgorithmTraits{"rloo", true, true, "arXiv 2402.14740", methods::kRloo},
    AlgorithmTraits{"reinforce++", true, true, "arXiv 2501.03262", methods::kReinforce},
    AlgorithmTraits{"reinforce++-baseline", true, true, "arXiv 2501.03262", methods::kReinforceBaseline},
    AlgorithmTraits{"sft", false, false, "-lp of the responses of the data"},
};

inline constexpr std::array kLosses{
    LossTraits{"ppo", "max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)); A < 0: at most -A dual_clip",
               "arXiv 1707.06347, 1912.09729", true, true, true},
    LossTraits{"gspo", "the same with r = exp(mean of lp - lo over the response)", "arXiv 2507.18071", true,
               false, false},
    LossTraits{"cispo", "-clip(r, 1 - clip_low, 1 + clip_high) A lp, the clipped ratio without a gradient",
               "arXiv 2506.13585", true, false, true},
    LossTraits{"reinforce", "-A lp", "Williams 1992", false, false, false},
};

inline constexpr std::array kAdvantages{
    AdvantageTraits{"grpo", "(R - mean_g) / (std_g + eps)", "arXiv 2402.03300", LoneSample::by_rule, true,
                    false, false, false},
    AdvantageTraits{"rloo", "R - mean of the others of its group", "arXiv 2402.14740", LoneSample::by_rule,
                    false, false, false, false},
    AdvantageTraits{"reinforce++", "returns of the token rewards (the KL in them), whitened over all tokens",
                    "arXiv 2501.03262", LoneSample::itself, false, true, true, false},
    AdvantageTraits{"reinforce++-baseline", "R - mean_g, whitened over all tokens", "arXiv 2501.03262",
                    LoneSample::by_rule, false, false, false, false},
    AdvantageTraits{"opo", "R - mean_g weighted by the lengths", "arXiv 2505.23585", LoneSample::by_rule,
                    false, false, false, false},
    AdvantageTraits{"gpg", "(R - mean_g) x responses / those with R not 0", "arXiv 2504.02546",
                    LoneSample::by_rule, false, false, false, false},
    AdvantageTraits{"pass@k", "of the best of a group: (R - second best) / (std_g + eps), else 0",
                    "arXiv 2503.19595", LoneSample::nothing, true, false, false, false},
    AdvantageTraits{"gdpo", "each part of the reward as in grpo, summed by weight, whitened over responses",
                    "arXiv 2601.05242", LoneSample::by_rule, false, false, false, true},
};

namespace methods {

template <class Rows>
constexpr auto names_of(const Rows& rows) {
  std::array<std::string_view, std::tuple_size_v<Rows>> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = rows[i].name;
  return names;
}
/// Rows elsewhere with the same names in the same order.
template <class Rows, class Others>
constexpr bool same_names(const Rows& rows, const Others& others) {
  if (rows.size() != others.size()) return false;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].name != others[i].name) return false;
  return true;
}
template <class Rows>
constexpr const auto& row_of(const Rows& rows, std::string_view name) {
  for (const auto& row : rows)
    if (row.name == name) return row;
  return rows.front();
}

}  // namespace methods

inline constexpr auto kAlgorithmNames = methods::names_of(kAlgorithms);
inline constexpr auto kLossNames = methods::names_of(kLosses);
inline constexpr auto kAdvantageNames = methods::names_of(kAdvantages);

/// The row of a legal name; an illegal one is answered elsewhere, and has that of the default.
constexpr const AlgorithmTraits& algorithm_traits(std::string_view name) {
  return methods::row_of(kAlgorithms, name);
}
constexpr const LossTraits& loss_traits(std::string_view name) { return methods::row_of(kLosses, name); }
constexpr const AdvantageTraits& advantage_traits(std::string_view name) {
  return methods::row_of(kAdvantages, name);
}

}  // namespace temper
