#include "src/nn/hybrid/gated_attention.h"

#include <cmath>

#include "src/ops/attention.h"
#include "src/ops/hybrid/gated_heads.h"

namespace temper {

GatedAttention::GatedAttention(const ModelConfig& config, int64_t layer, const Attention::Parameters& p,
                               const RopeTensors& rope, const Splits& splits)
    : shape_(attention_shape(config, splits.tp_ranks())),
      exchange_(shape_, splits.cp),
      scale_(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
      eps_(config.rms_norm_eps),
      layer_(layer),
      wqkv_(*p.wqkv, p.bqkv, splits, Parallel::column, p.qkv_adapter),
      wo_(*p.wo, p.bo, splits, Parallel::row, p.o_adapter),
      q_norm_(p.q_norm),
      k_norm_(p.k_norm),
      rope_(rope) {}

Tensor GatedAttention::forward(Ctx& c, const Batch& b, CTensor x, GatedAttentionSaved* saved,
                               const Keep& keep) const {
  const int64_t tokens = b.num_tokens();
  const DType accumulate = accumulate_dtype(x.dtype);
  Arena &memory = keep.for_products(c), &rest = keep.for_rest(c);
  const Tensor projected = wqkv_.forward(c, x, memory, b.stream());
  Arena& of_tokens = exchange_.on(b) ? c.scratch : rest;
  Tensor qkv = of_tokens.make({tokens, shape_.qkv_width()}, x.dtype);
  const Tensor head_rstd = memory.make({tokens, shape_.q_heads + shape_.kv_heads}, accumulate);
  gated_heads_forward(c, qkv, head_rstd, projected, q_norm_->value, k_norm_->value, rope_of(b), shape_, eps_);
  Tensor attended, lse, of_heads;
  if (b.kv) {
    attended = memory.make({tokens, shape_.q_width()}, x.dtype);
    append_kv(c, *b.kv, layer_, qkv, b.cu_seqlens, shape_);
    attention_paged(c, attended, qkv, *b.kv, layer_, b.cu_seqlens, shape_, scale_);
  } else {
    const AttentionShape own = exchange_.own(b);
    qkv = exchange_.qkv.to_heads(c, rest, b, qkv, "heads of all tokens");
    of_heads = memory.make({qkv.dim(0), own.q_width()}, x.dtype);
    lse = memory.make({own.q_heads, qkv.dim(0)}, accumulate);
    attention_varlen_forward(c, of_heads, lse, qkv, b.cu_seqlens, own, scale_);
    attended = exchange_.out.to_tokens(c, memory, b, of_heads, "attention of own tokens");
  }
  const Tensor out = rest.like(attended);
  output_gate_forward(c, out, attended, projected, shape_);
  if (saved) *saved = {x, projected, head_rstd, qkv, attended, lse, out, of_heads};
  if (saved && !keep.rest) saved->x = {}, saved->qkv = saved->out = {};
  return wo_.forward(c, out, c.scratch, b.stream());
}

Tensor GatedAttention::backward(Ctx& c, const Batch& b, CTensor dy, CTensor x,
                                const GatedAttentionSaved& s) const {
  Tensor out = s.out, qkv = s.qkv;
  if (out.empty()) {
    out = c.scratch.like(s.attended);
    output_gate_forward(c, out, s.attended, s.projected, shape_);
  }
  if (qkv.empty()) {
    qkv = c.scratch.make({s.projected.dim(0), shape_.qkv_width()}, s.projected.dtype);
    gated_heads_forward(c, qkv, c.scratch.like(s.head_rstd), s.projected, q_norm_->value, k_norm_->value,
                        rope_of(b), shape_, eps_);
    qkv = exchange_.qkv.to_heads(c, c.scratch, b, qkv, "heads of all tokens");
  }
  const Tensor dattended = wo_.backward(c, dy, out, b.stream()), dprojected = c.scratch.like(s.projected);
  output_gate_backward(c, dattended, dprojected, dattended, s.attended, s.projected, shape_);
  const Tensor dof_heads =
      exchange_.out.to_heads(c, c.scratch, b, dattended, "gradients of own heads, of all tokens");
  Tensor dqkv = c.scratch.like(qkv);
  attention_varlen_backward(c, dqkv, dof_heads, qkv, s.of_heads, s.lse, b.cu_seqlens, exchange_.own(b),
                            scale_);
  dqkv =
      exchange_.qkv.to_tokens(c, c.scratch, b, dqkv, "gradients of own tokens, with sums over shared heads");
  gated_heads_backward(c, dprojected, q_norm_->grad_sum_beside(c), k_norm_->grad_sum_beside(c), dqkv,
                       s.projected, q_norm_->value, k_norm_->value, s.head_rstd, rope_of(b), shape_);
  return wqkv_.backward(c, dprojected, x, b.stream());
}

}  // namespace temper
