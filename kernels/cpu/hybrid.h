#pragma once
// Entry points of the CPU backend that hybrid models have beside those of kernels/kernels.h, and no other
// backend has. Formulas and shapes: the functions of the same names in src/ops/hybrid.

#include "kernels/delta_types.h"
#include "kernels/types.h"
#include "src/core/ctx.h"

namespace temper::cpu {

void offset_norm_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps);
void add_offset_norm_forward(Ctx& ctx, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
                             double eps);
void offset_norm_backward(Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x, CTensor w,
                          CTensor rstd);

void gated_heads_forward(Ctx& ctx, Tensor qkv, Tensor rstd, CTensor x, CTensor wq, CTensor wk, RopeInput rope,
                         AttentionShape shape, double eps);
void gated_heads_backward(Ctx& ctx, Tensor dx, Tensor dwq, Tensor dwk, CTensor dqkv, CTensor x, CTensor wq,
                          CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape);
void output_gate_forward(Ctx& ctx, Tensor y, CTensor attended, CTensor x, AttentionShape shape);
void output_gate_backward(Ctx& ctx, Tensor dattended, Tensor dx, CTensor dy, CTensor attended, CTensor x,
                          AttentionShape shape);

void causal_conv_forward(Ctx& ctx, Tensor y, CTensor x, CTensor w, CTensor cu_seqlens);
void causal_conv_paged(Ctx& ctx, Tensor y, DeltaPages pages, int64_t layer, CTensor x, CTensor w,
                       CTensor cu_seqlens);
void causal_conv_backward(Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor w,
                          CTensor cu_seqlens);
void unit_heads_forward(Ctx& ctx, Tensor y, DeltaShape shape);
void unit_heads_backward(Ctx& ctx, Tensor dy, CTensor y, DeltaShape shape);
void delta_gates_forward(Ctx& ctx, Tensor beta, Tensor g, CTensor x, CTensor a_log, CTensor dt_bias,
                         DeltaShape shape);
void delta_gates_backward(Ctx& ctx, Tensor dx, Tensor da_log, Tensor ddt_bias, CTensor dbeta, CTensor dg,
                          CTensor beta, CTensor g, CTensor x, CTensor a_log, CTensor dt_bias,
                          DeltaShape shape);
void delta_rule_forward(Ctx& ctx, Tensor o, Tensor u, Tensor decays, CTensor qkv, CTensor beta, CTensor g,
                        CTensor cu_seqlens, DeltaShape shape);
void delta_rule_paged(Ctx& ctx, Tensor o, DeltaPages pages, int64_t layer, CTensor qkv, CTensor beta,
                      CTensor g, CTensor cu_seqlens, DeltaShape shape);
void delta_rule_backward(Ctx& ctx, Tensor dqkv, Tensor dbeta, Tensor dg, CTensor d_o, CTensor qkv,
                         CTensor beta, CTensor u, CTensor decays, CTensor cu_seqlens, DeltaShape shape);
void gated_norm_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor o, CTensor x, CTensor w, DeltaShape shape,
                        double eps);
void gated_norm_backward(Ctx& ctx, Tensor d_o, Tensor dx, Tensor dw, CTensor dy, CTensor o, CTensor x,
                         CTensor w, CTensor rstd, DeltaShape shape);

}  // namespace temper::cpu
