#pragma once
// The steps of a gated delta net. Rows x are projected ones as DeltaShape (kernels/delta_types.h) cuts them:
// [q | k | v | z | b | a], W wide, of which q, k and v are the first C columns; gradients of x are written
// column by column by the steps that read them. A is the accumulate dtype. Nothing goes from one sequence of
// a batch to another. A forward row has the same bits for any batch, and whether its sequence came whole or
// row by row (`_paged`: what came before lies in pages, to which these rows are added; pages of a sequence
// without rows stay as they are). Exact order of operations: NUMERICS.md of the backends. Sources: Yang,
// Kautz, Hatamizadeh, "Gated Delta Networks"; Qwen3.5 as transformers has it.

#include "kernels/delta_types.h"
#include "src/core/ctx.h"

namespace temper {

/// Most elements of a key or value head on a GPU.
inline constexpr int64_t kMaxDeltaHeadDim = 256;

/// c_t = sum_{j<K} w[:, j] x_{t-K+1+j}, of the first C columns, rows before the sequence's first being 0;
/// y_t = round(c_t sigmoid(c_t))
/// y: [T, C]   x: [T, >= C]   w: [C, K], K at most kMostDeltaTaps   cu_seqlens: [S+1] i32
void causal_conv_forward(Ctx& c, Tensor y, CTensor x, CTensor w, CTensor cu_seqlens);
void causal_conv_paged(Ctx& c, Tensor y, DeltaPages pages, int64_t layer, CTensor x, CTensor w,
                       CTensor cu_seqlens);
/// dc = dy silu'(c), silu'(c) = s (1 + c (1 - s)):   dx_s = sum_j w[:, j] dc_{s+K-1-j}, of rows of the same
/// sequence, into the first C columns of dx;   dw[:, j] += sum_t dc_t x_{t-K+1+j}
/// dx, x: [T, >= C]   dw: [C, K] in A   dy: [T, C]
void causal_conv_backward(Ctx& c, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor w, CTensor cu_seqlens);

/// In place on q and k: each head is divided by sqrt(sum y^2 + 1e-6), q heads also by sqrt(dk).
/// y: [T, C]
void unit_heads_forward(Ctx& c, Tensor y, DeltaShape shape);
/// r = 1 / sqrt(sum y^2 + 1e-6), n = y r, g = dy, for q heads dy / sqrt(dk):   dy <- r (g - n <n, g>)
/// dy: [T, C], in place on q and k   y: [T, C] before unit_heads_forward
void unit_heads_backward(Ctx& c, Tensor dy, CTensor y, DeltaShape shape);

/// beta = sigmoid(b),  g = -e^a_log softplus(a + dt_bias), softplus(x) = x above 20; neither is rounded.
/// beta, g: [T, Hv] in A   x: [T, W]   a_log: [Hv] in A   dt_bias: [Hv]
void delta_gates_forward(Ctx& c, Tensor beta, Tensor g, CTensor x, CTensor a_log, CTensor dt_bias,
                         DeltaShape shape);
/// db = dbeta beta (1 - beta),  da = -dg e^a_log sigmoid(a + dt_bias);  da_log += sum_t dg g,  ddt_bias +=
/// sum_t da dx, x: [T, W]   da_log, ddt_bias: [Hv] in A   dbeta, dg, beta, g: [T, Hv] in A
void delta_gates_backward(Ctx& c, Tensor dx, Tensor da_log, Tensor ddt_bias, CTensor dbeta, CTensor dg,
                          CTensor beta, CTensor g, CTensor x, CTensor a_log, CTensor dt_bias,
                          DeltaShape shape);

/// What the rule reads, in one pass: causal_conv_forward or _paged, unit_heads_forward and delta_gates_forward
/// of a projected row, in the bits of these.
/// qkv: [T, C]   beta, g: [T, Hv] in A   x: [T, W]   w: [C, K]   a_log: [Hv] in A   dt_bias: [Hv]
void delta_inputs_forward(Ctx& c, Tensor qkv, Tensor beta, Tensor g, CTensor x, CTensor w, CTensor a_log,
                          CTensor dt_bias, CTensor cu_seqlens, DeltaShape shape);
void delta_inputs_paged(Ctx& c, Tensor qkv, Tensor beta, Tensor g, DeltaPages pages, int64_t layer, CTensor x,
                        CTensor w, CTensor a_log, CTensor dt_bias, CTensor cu_seqlens, DeltaShape shape);
/// unit_heads_backward, then causal_conv_backward, in the bits of these; dqkv is used up.
/// dx, x: [T, W]   dw: [C, K] in A   dqkv: [T, C]
void delta_conv_backward(Ctx& c, Tensor dx, Tensor dw, Tensor dqkv, CTensor x, CTensor w, CTensor cu_seqlens,
                         DeltaShape shape);

/// With the state S [dk, dv] of a value head, zeros before its sequence: M = e^g S, u = beta (v - M^T k),
/// S <- M + k u^T, o = S^T q. In chunks of kDeltaChunk rows, with G_i = sum_{j<=i} g_j in the chunk:
///   u_i = beta_i (v_i - e^{G_i} S^T k_i - sum_{j<i} e^{G_i-G_j} <k_i, k_j> u_j)
///   o_i = e^{G_i} S^T q_i + sum_{j<=i} e^{G_i-G_j} <q_i, k_j> u_j
///   S  <- e^{G_last} S + sum_j k_j (e^{G_last-G_j} u_j)^T
/// o, u: [T, Hv dv]   decays G: [T, Hv] in A; u and G are kept for backward
/// qkv: [T, C] after unit_heads_forward   beta, g: [T, Hv] in A   cu_seqlens: [S+1] i32
void delta_rule_forward(Ctx& c, Tensor o, Tensor u, Tensor decays, CTensor qkv, CTensor beta, CTensor g,
                        CTensor cu_seqlens, DeltaShape shape);
void delta_rule_paged(Ctx& c, Tensor o, DeltaPages pages, int64_t layer, CTensor qkv, CTensor beta, CTensor g,
                      CTensor cu_seqlens, DeltaShape shape);

/// Chunk by chunk from the last one, dS being the gradient of the state after it. With D_ij = e^{G_i-G_j},
/// A_ij = D_ij <k_i, k_j> (j < i), P_ij = D_ij <q_i, k_j> (j <= i), Gam = e^G, t_j = e^{G_last-G_j}, o the
/// element by element product:
///   X = U dS^T;  dU = P^T dO + (t o K) dS;  (I + diag(beta) A)^T Y = dU;  Z = beta o Y = dV
///   dbeta_i = <Y_i, v_i - Gam_i (K S)_i - (A U)_i>;  dA = -lower(Z U^T);  dP = lower(dO U^T)
///   dQ = Gam o (dO S^T) + (dP o D) K
///   dK = t o X - Gam o (Z S^T) + (dP o D)^T Q + ((dA o D) + (dA o D)^T) K
///   E = dP o P + dA o A;  e_j = t_j <k_j, X_j>
///   dG_i = Gam_i (<dO_i, (Q S)_i> - <Z_i, (K S)_i>) + sum_j E_ij - sum_j E_ji - e_i
///   dG_last += sum_j e_j + Gam_last <S, dS>;  dg_i = sum_{j>=i} dG_j
///   dS <- Gam_last dS + (Gam o Q)^T dO - (Gam o K)^T Z
/// The states between chunks are made again.
/// dqkv: [T, C]   dbeta, dg: [T, Hv] in A   do: [T, Hv dv]   the rest as the forward had and left it
void delta_rule_backward(Ctx& c, Tensor dqkv, Tensor dbeta, Tensor dg, CTensor d_o, CTensor qkv, CTensor beta,
                         CTensor u, CTensor decays, CTensor cu_seqlens, DeltaShape shape);

/// rstd = 1 / sqrt(mean(o^2) + eps) of each head,  y = round(w (o rstd) z sigmoid(z))
/// y, o: [T, Hv dv]   rstd: [T, Hv] in A   x: [T, W]   w: [dv] in A, of all heads
void gated_norm_forward(Ctx& c, Tensor y, Tensor rstd, CTensor o, CTensor x, CTensor w, DeltaShape shape,
                        double eps);
/// n = o rstd, dn = dy w silu(z):   do = rstd (dn - n mean(dn n)),  dz = dy w n silu'(z);  dw += sum dy n
/// silu(z) do: [T, Hv dv], may be the memory of dy   dx, x: [T, W]   dw: [dv] in A   dy, o: [T, Hv dv]
void gated_norm_backward(Ctx& c, Tensor d_o, Tensor dx, Tensor dw, CTensor dy, CTensor o, CTensor x,
                         CTensor w, CTensor rstd, DeltaShape shape);

}  // namespace temper
