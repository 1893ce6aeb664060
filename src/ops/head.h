#pragma once
// Output head: selected log-prob and entropy of softmax(hidden w^T / T), without ever holding the logits of a
// batch (a window of 2,048 ids at a time, recomputed in backward). Statistics are in the accumulate dtype A
// of the storage type: fp32, or fp64 for fp64. The sum runs over all V rows of w. Temperature 0 means T = 1.

#include "src/ops/dispatch.h"

namespace temper {

/// t = hidden w^T / T;  lse = ln sum_v e^t_v;  logprob = t_target - lse;  entropy = lse - sum_v p_v t_v
/// logprob, entropy, lse: [n] in A   hidden: [n, D]   w: [V, D]   targets: [n] i32, each in [0, V)
void logprob_forward(Ctx& c, Tensor logprob, Tensor entropy, Tensor lse, CTensor hidden, CTensor w,
                     CTensor targets, double temperature);

/// The same in two steps, of a vocabulary that ranks share in whole chunks. First each rank's part of it:
/// stats[c, i] = (m, s, u) of chunk c, with m = max t, s = sum e^(t - m), u = sum e^(t - m) t;
/// target_logit[i] = t_target where this share has it, else -0: a sum over the shares copies it.
/// stats: [chunks of w, n, 3] in A   target_logit: [n] in A
void logprob_stats(Ctx& c, Tensor stats, Tensor target_logit, CTensor hidden, CTensor w, CTensor targets,
                   double temperature, VocabularyShare share);
/// Then, from the chunks of all shares in ascending order.   stats: [chunks, n, 3] in A
void logprob_merge(Ctx& c, Tensor logprob, Tensor entropy, Tensor lse, CTensor stats, CTensor target_logit);

/// dz_v = (1/T) (dlogprob (1[v = target] - p_v) - dentropy p_v (t_v - lse + entropy));  p_v = e^(t_v - lse)
/// dhidden = dz w, overwritten, one rounding;  dw += dz^T hidden. Rows whose two gradients are 0 take no
/// part: their dhidden is exactly 0, whatever hidden holds. dhidden: [n, D], of hidden's dtype, or in A
/// (unrounded: a part of a sum over shares)   dw: [V, D] in A, or empty: it is not made   dlogprob, dentropy:
/// [n] in A lse, entropy: [n] in A, of the forward, over all shares
void logprob_backward(Ctx& c, Tensor dhidden, Tensor dw, CTensor dlogprob, CTensor dentropy, CTensor hidden,
                      CTensor w, CTensor targets, CTensor lse, CTensor entropy, double temperature,
                      VocabularyShare share = {});

}  // namespace temper
