#include "src/nn/attention.h"

#include <cmath>

#include "src/ops/attention.h"
#include "src/ops/norm.h"
#include "src/ops/rope.h"

namespace temper {

AttentionShape attention_shape(const ModelConfig& config, int ranks) {
  return own_heads({config.num_heads, config.num_kv_heads, config.head_dim}, ranks);
}

Attention::Attention(const ModelConfig& config, int64_t layer, const Parameters& p, const RopeTensors& rope,
                     const Splits& splits)
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

Tensor Attention::forward(Ctx& c, const Batch& b, CTensor x, AttentionSaved* saved, const Keep& keep) const {
  const int64_t tokens = b.num_tokens();
  const DType accumulate = accumulate_dtype(x.dtype);
  Arena& memory = keep.for_products(c);
  Arena& of_qkv = q_norm_ ? keep.for_rest(c) : memory;  // what attention works on
  Arena& of_tokens = exchange_.on(b) ? c.scratch : of_qkv;
  const Tensor low_in = wqkv_.make_low(keep, x, b.stream());
  Tensor projected, head_rstd, qkv = wqkv_.forward(c, x, q_norm_ ? memory : of_tokens, b.stream(), low_in);
  if (q_norm_) {
    projected = qkv;
    qkv = of_tokens.like(projected);
    head_rstd = memory.make({tokens, shape_.q_heads + shape_.kv_heads}, accumulate);
    if (b.kv)
      head_norm_rope_append(c, qkv, head_rstd, *b.kv, layer_, projected, q_norm_->value, k_norm_->value,
                            rope_of(b), b.cu_seqlens, shape_, eps_);
    else
      head_norm_rope_forward(c, qkv, head_rstd, projected, q_norm_->value, k_norm_->value, rope_of(b), shape_,
                             eps_);
  } else {
    rope_forward(c, qkv, b.positions, rope_.cosine, rope_.sine, shape_);
    if (b.kv) append_kv(c, *b.kv, layer_, qkv, b.cu_seqlens, shape_);
  }
  Tensor out, lse, of_heads;
  if (b.kv) {
    out = memory.make({tokens, shape_.q_width()}, x.dtype);
    attention_paged(c, out, qkv, *b.kv, layer_, b.cu_seqlens, shape_, scale_);
  } else {
    const AttentionShape own = exchange_.own(b);
    qkv = exchange_.qkv.to_heads(c, of_qkv, b, qkv, "heads of all tokens");
    of_heads = memory.make({qkv.dim(0), own.q_width()}, x.dtype);
    lse = memory.make({own.q_heads, qkv.dim(0)}, accumulate);
    attention_varlen_forward(c, of_heads, lse, qkv, b.cu_seqlens, own, scale_);
    out = exchange_.out.to_tokens(c, memory, b, of_heads, "attention of own tokens");
  }
  const Tensor low = wo_.make_low(keep, out, b.stream());
  if (saved) *saved = {x, projected, head_rstd, qkv, out, lse, of_heads, low_in, low};
  if (saved && !keep.rest) saved->x = {}, saved->qkv = q_norm_ ? Tensor{} : qkv;
  return wo_.forward(c, out, c.scratch, b.stream(), low);
}

Tensor Attention::backward(Ctx& c, const Batch& b, CTensor dy, CTensor x, const AttentionSaved& s) const {
  Tensor dout = wo_.backward(c, dy, s.out, b.stream(), s.low_out);
  dout = exchange_.out.to_heads(c, c.scratch, b, dout, "gradients of own heads, of all tokens");
  Tensor qkv = s.qkv;
  if (qkv.empty()) {
    qkv = c.scratch.like(s.projected);
    head_norm_rope_forward(c, qkv, c.scratch.like(s.head_rstd), s.projected, q_norm_->value, k_norm_->value,
                           rope_of(b), shape_, eps_);
    qkv = exchange_.qkv.to_heads(c, c.scratch, b, qkv, "heads of all tokens");
  }
  Tensor dqkv = c.scratch.like(qkv);
  attention_varlen_backward(c, dqkv, dout, qkv, s.of_heads, s.lse, b.cu_seqlens, exchange_.own(b), scale_);
  dqkv =
      exchange_.qkv.to_tokens(c, c.scratch, b, dqkv, "gradients of own tokens, with sums over shared heads");
  if (q_norm_)
    head_norm_rope_backward(c, dqkv, q_norm_->grad_sum_beside(c), k_norm_->grad_sum_beside(c), dqkv,
                            s.projected, q_norm_->value, k_norm_->value, s.head_rstd, rope_of(b), shape_);
  else
    rope_backward(c, dqkv, b.positions, rope_.cosine, rope_.sine, shape_);
  return wqkv_.backward(c, dqkv, x, b.stream(), s.low_in);
}

}  // namespace temper
