#pragma once
// A feed-forward layer of experts: which of E experts take a token, their products over the rows of all of
// them at once, and the sum of what they make. Each token takes K experts; the T K pairs are rows, sorted by
// expert, then by token. A is the accumulate dtype: fp32, or fp64 for fp64.
// A token's row of each forward result has the same bits for any T, any position, any other tokens beside it
// and any number of threads. Sources: Qwen3-MoE, Qwen2-MoE, Mixtral as transformers has them.

#include "src/ops/dispatch.h"

namespace temper {

/// p = softmax(u), S = the K experts with the largest u, of equal ones those with the lower id,
/// w_j = p[S_j], with `normalize` divided by their sum. NaN counts as less than any number.
/// ids: [T, K] i32, ascending   weights: [T, K] in A   logits u: [T, >= E] in A, the first E columns
void choose_experts(Ctx& c, Tensor ids, Tensor weights, CTensor logits, int64_t num_experts, bool normalize);

/// The first E columns of dlogits, from the gradients of the weights:
///   dp[S_j] = dw_j, 0 elsewhere;  du_v = p_v (dp_v - sum_k dp_k p_k)
///   with `normalize`, pi_j = w_j:  du[S_j] = pi_j (dw_j - sum_i dw_i pi_i), 0 elsewhere
/// dlogits: as logits, in A   dweights, weights: [T, K] in A   ids: [T, K] i32   logits: [T, >= E] in A
void choose_experts_backward(Ctx& c, Tensor dlogits, CTensor dweights, CTensor ids, CTensor weights,
                             CTensor logits, int64_t num_experts, bool normalize);

/// The rows of each expert: those of expert e are [offsets[e], offsets[e + 1]), by ascending token.
/// offsets: [E + 1] i32   tokens: [T K] i32, of each row   places: [T, K] i32, the row of each choice
/// ids: [T, K] i32, each token's different
void sort_by_expert(Ctx& c, Tensor offsets, Tensor tokens, Tensor places, CTensor ids);

/// What a router did, added up: the rows of each expert, and the entropies, in nats, of softmax(u[t, :E]):
///   sums[e] += offsets[e + 1] - offsets[e];  sums[E] += sum_t -sum_e p_e log p_e
/// sums: [E + 1] in A   logits u: [T, >= E] in A   offsets: [E + 1] i32 (of sort_by_expert)
void add_router_sums(Ctx& c, Tensor sums, CTensor logits, CTensor offsets);

/// The choices of the rows of each stretch, added up:
///   counts[s, e] += how often e is among ids[begins[s] .. begins[s + 1])
/// counts: [S, E] i32   ids: [T, K] i32   begins: [S + 1] i32, ascending in [0, T]
void add_router_counts(Ctx& c, Tensor counts, CTensor ids, CTensor begins);

/// count += the ids in `given` that are not among those of their row
/// count: [1] i32   ids, given: [T, K] i32; a row of `given` that is negative is left out
void count_other_routes(Ctx& c, Tensor count, CTensor ids, CTensor given);

/// choose_experts with S as given: ids and weights of the rows that have some; the rest stay as they are.
/// given: [T, K] i32 in [0, E), ascending, or negative   the rest: as in choose_experts
void follow_routes(Ctx& c, Tensor ids, Tensor weights, CTensor given, CTensor logits, int64_t num_experts,
                   bool normalize);

/// Losses that a router has of its own, for rows t of stretch s, p = softmax(u[t, :E]), l = logsumexp:
///   losses[0] += sum_t sum_e slopes[s, e] p_e;  losses[1] += z sum_t l^2
///   du[t, v] += p_v (slopes[s, v] - sum_e slopes[s, e] p_e) + 2 z l p_v
/// slopes: [S, E] in A   losses: [2] in A   begins: [S + 1] i32, ascending in [0, T]
/// dlogits, logits u: [T, >= E] in A; dlogits of rows outside of the stretches stay as they are
void router_losses_backward(Ctx& c, Tensor dlogits, Tensor losses, CTensor logits, CTensor slopes,
                            CTensor begins, double z);

/// linear_forward (ops/linear.h) of each expert's rows with its block of w, the same bits.
/// y: [R, N]   x: [R, K], of one dtype   w: [E N, K]   offsets: [E + 1] i32 (of sort_by_expert, or some
/// neighbouring ones of these: rows before the first and from the last on are left as they are)
void expert_linear_forward(Ctx& c, Tensor y, CTensor x, CTensor w, CTensor offsets);

/// linear_backward_input of each expert's rows, the same bits.      dx: [R, K]   dy: [R, N], of one dtype
void expert_linear_backward_input(Ctx& c, Tensor dx, CTensor dy, CTensor w, CTensor offsets);

/// linear_backward_weight of each expert's rows into its block: of one without rows zeros as the first write,
/// nothing otherwise.      dw: [E N, K] in A   dy: [R, N]   x: [R, K]
void expert_linear_backward_weight(Ctx& c, Tensor dw, CTensor dy, CTensor x, CTensor offsets,
                                   GradWrite write);

/// y[t] = round(sum_j w[t,j] x[places[t,j]] + sigmoid(u[t, last]) shared[t]): fused multiply-adds in A, in
/// ascending order of the choices from zero, the shared expert last.
/// y: [T, D]   x: [R, D]   places: [T, K] i32   weights: [T, K] in A   shared: [T, D] or empty
/// logits u: [T, any] in A: its last column is the gate of the shared expert; not read without one
void combine_experts(Ctx& c, Tensor y, CTensor x, CTensor places, CTensor weights, CTensor shared,
                     CTensor logits);

/// The weights' part of the backward of y = sum_j w_j (Wd a_j), from da' = Wd^T dy of each row:
///   dw[t,j] = <da'[r], a[r]>,  da[r] = round(w[t,j] da'[r]),  wa[r] = round(w[t,j] a[r]),  r = places[t,j]
/// The dot product is one of rows, whose order depends on F alone.
/// da, da', a, wa: [R, F]; da may be the memory of da', wa that of a   dweights, weights: [T, K] in A
void weigh_expert_rows_backward(Ctx& c, Tensor da, Tensor wa, Tensor dweights, CTensor dweighted, CTensor a,
                                CTensor places, CTensor weights);

/// s = sigmoid(u[t, last]):  dshared[t] = round(s dy[t]),  du[t, last] = <dy[t], shared[t]> s (1 - s)
/// dshared, dy, shared: [T, D]; dshared may be the memory of shared   dlogits, logits u: [T, any] in A
void shared_expert_backward(Ctx& c, Tensor dshared, Tensor dlogits, CTensor dy, CTensor shared,
                            CTensor logits);

/// dx[t] = round(((sum_j rows[places[t,j]]) + router[t]) + shared[t]), in A, ascending by choice
/// dx: [T, D]   rows: [R, D]   places: [T, K] i32   router: [T, D] in A   shared: [T, D] of dx's dtype, or
/// empty
void sum_expert_rows(Ctx& c, Tensor dx, CTensor rows, CTensor places, CTensor router, CTensor shared);

}  // namespace temper
