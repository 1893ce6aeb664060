#pragma once
// Weights of tokens that other weights sampled, and the responses that are too far from them. With
// D_t = lo - lb (log-prob under the weights that the ratio starts at, and under those that sampled):
//   token  exp(D_t)    sequence  exp(sum of D over the response)    geometric  exp(mean of D)
// with D, its sum or its mean clamped to [-20, 20]. Outside its bounds a weight is moved to the bound
// (truncate) or 0 (mask). On policy, D = 0 everywhere, a weight is exactly 1. The weights have no gradient.

#include <span>
#include <vector>

#include "src/config/algorithm_config.h"
#include "src/rl/types.h"

namespace temper {

struct ImportanceRule {
  enum class Level { token, sequence, geometric };  // order of kImportanceLevels
  enum class Form { truncate, mask };               // order of kImportanceForms
  Level level = Level::token;
  Form form = Form::truncate;
  double low = 0, high = 0;
  bool on = false;
};

/// Error(Exit::usage) names the key of an illegal value.
ImportanceRule importance_rule(const AlgorithmConfig& config);

struct ImportanceWeight {
  double value = 1;
  bool bounded = false;
};

/// The weights of n tokens in sequences with these borders; those of tokens with `counted` 0 are not
/// computed. Without borders the level has to be `token`.
std::vector<ImportanceWeight> importance_weights(const ImportanceRule& rule,
                                                 std::span<const double> old_logprob,
                                                 std::span<const double> sampled_logprob,
                                                 std::span<const double> counted,
                                                 std::span<const int32_t> sequence_begin);

/// Responses are rejected by the mean over counted tokens of e^D - 1 - D, or by one token with e^D below a
/// bound. 0: off.
struct RejectionRule {
  double mean_k3 = 0, token_below = 0;
  bool on() const { return mean_k3 > 0 || token_below > 0; }
};

/// Clears the masks of the rejected ones among those with old_logprobs, and says how many they are.
int64_t reject(std::span<Group> groups, const RejectionRule& rule);

}  // namespace temper
