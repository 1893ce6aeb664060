#pragma once
// A policy loss: value l_t and gradient a_t = d l_t / d lp_t of each token, from log-probs, advantages and
// the borders of sequences. Importance weights, KL, entropy and the weights of tokens are none of its
// business (policy_gradient.h). Formulas: config/methods.h. Every boundary is inclusive for the gradient; A =
// 0 gives value and gradient 0; what is not counted is never looked at, and keeps the term it has.

#include <cstdint>
#include <span>
#include <string_view>

#include "src/config/methods.h"

namespace temper {

/// Per target token of one micro-batch: all of length n.
struct PolicyTokens {
  std::span<const double> logprob, old_logprob, advantage;
  std::span<const double> weight;           // 0: the token is not counted
  std::span<const int32_t> sequence_begin;  // [S+1] borders of whole sequences; loss of sequences alone
};

struct TokenTerm {
  double value = 0, gradient = 0;
  bool clipped = false;       // by clip_low or clip_high
  bool dual_clipped = false;  // by dual_clip
};

struct LossOptions {
  double clip_low = 0, clip_high = 0;
  double dual_clip = 0, ratio_clamp = 0;  // 0: off
};

using PolicyLoss = void (*)(const PolicyTokens& in, const LossOptions& options, std::span<TokenTerm> terms);

void ppo_loss(const PolicyTokens& in, const LossOptions& options, std::span<TokenTerm> terms);
void gspo_loss(const PolicyTokens& in, const LossOptions& options, std::span<TokenTerm> terms);
void cispo_loss(const PolicyTokens& in, const LossOptions& options, std::span<TokenTerm> terms);
void reinforce_loss(const PolicyTokens& in, const LossOptions& options, std::span<TokenTerm> terms);

struct PolicyLossRow {
  std::string_view name;
  PolicyLoss loss;
};
inline constexpr std::array kPolicyLosses{PolicyLossRow{"ppo", ppo_loss}, PolicyLossRow{"gspo", gspo_loss},
                                          PolicyLossRow{"cispo", cispo_loss},
                                          PolicyLossRow{"reinforce", reinforce_loss}};
static_assert(methods::same_names(kPolicyLosses, kLosses), "a row here for each loss of config/methods.h");

/// -A r against -A clip(r, 1 - clip_low, 1 + clip_high), the larger one; the gradient is that of r by lp = r,
/// where `moves`.
TokenTerm clipped_term(double advantage, double ratio, bool moves, const LossOptions& options);

}  // namespace temper
