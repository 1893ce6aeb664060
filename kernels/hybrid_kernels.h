// What backends have for hybrid models beside kernels/kernels.h, to be read as that list is. Formulas and
// shapes: the functions of the same names in src/ops/hybrid.

// norms by 1 + w
KERNEL(offset_norm_forward, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps)
KERNEL(add_offset_norm_forward, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
       double eps)
SCRATCH_KERNEL(offset_norm_backward, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x,
               CTensor w, CTensor rstd)
// attention with an output gate
KERNEL(gated_heads_forward, Tensor qkv, Tensor rstd, CTensor x, CTensor wq, CTensor wk, RopeInput rope,
       AttentionShape shape, double eps)
SCRATCH_KERNEL(gated_heads_backward, Tensor dx, Tensor dwq, Tensor dwk, CTensor dqkv, CTensor x,
               CTensor wq, CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape)
KERNEL(output_gate_forward, Tensor y, CTensor attended, CTensor x, AttentionShape shape)
KERNEL(output_gate_backward, Tensor dattended, Tensor dx, CTensor dy, CTensor attended, CTensor x,
       AttentionShape shape)
// gated delta nets
KERNEL(causal_conv_forward, Tensor y, CTensor x, CTensor w, CTensor cu_seqlens)
KERNEL(causal_conv_paged, Tensor y, DeltaPages pages, int64_t layer, CTensor x, CTensor w,
       CTensor cu_seqlens)
SCRATCH_KERNEL(causal_conv_backward, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor w,
               CTensor cu_seqlens)
KERNEL(unit_heads_forward, Tensor y, DeltaShape shape)
KERNEL(unit_heads_backward, Tensor dy, CTensor y, DeltaShape shape)
KERNEL(delta_gates_forward, Tensor beta, Tensor g, CTensor x, CTensor a_log, CTensor dt_bias,
       DeltaShape shape)
SCRATCH_KERNEL(delta_gates_backward, Tensor dx, Tensor da_log, Tensor ddt_bias, CTensor dbeta, CTensor dg,
               CTensor beta, CTensor g, CTensor x, CTensor a_log, CTensor dt_bias, DeltaShape shape)
KERNEL(delta_inputs_forward, Tensor qkv, Tensor beta, Tensor g, CTensor x, CTensor w, CTensor a_log,
       CTensor dt_bias, CTensor cu_seqlens, DeltaShape shape)
KERNEL(delta_inputs_paged, Tensor qkv, Tensor beta, Tensor g, DeltaPages pages, int64_t layer, CTensor x,
       CTensor w, CTensor a_log, CTensor dt_bias, CTensor cu_seqlens, DeltaShape shape)
SCRATCH_KERNEL(delta_conv_backward, Tensor dx, Tensor dw, Tensor dqkv, CTensor x, CTensor w,
               CTensor cu_seqlens, DeltaShape shape)
KERNEL(delta_rule_forward, Tensor o, Tensor u, Tensor decays, CTensor qkv, CTensor beta, CTensor g,
       CTensor cu_seqlens, DeltaShape shape)
KERNEL(delta_rule_paged, Tensor o, DeltaPages pages, int64_t layer, CTensor qkv, CTensor beta, CTensor g,
       CTensor cu_seqlens, DeltaShape shape)
SCRATCH_KERNEL(delta_rule_backward, Tensor dqkv, Tensor dbeta, Tensor dg, CTensor d_o, CTensor qkv,
               CTensor beta, CTensor u, CTensor decays, CTensor cu_seqlens, DeltaShape shape)
KERNEL(gated_norm_forward, Tensor y, Tensor rstd, CTensor o, CTensor x, CTensor w, DeltaShape shape,
       double eps)
SCRATCH_KERNEL(gated_norm_backward, Tensor d_o, Tensor dx, Tensor dw, CTensor dy, CTensor o, CTensor x,
               CTensor w, CTensor rstd, DeltaShape shape)
