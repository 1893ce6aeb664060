#include "src/nn/hybrid/delta_net.h"

#include "src/ops/hybrid/delta.h"

namespace temper {

static_assert(DeltaConfig::kMostTaps == kMostDeltaTaps);

DeltaShape delta_shape(const DeltaConfig& config) {
  return {config.key_heads, config.value_heads, config.key_dim, config.value_dim};
}

DeltaNet::DeltaNet(const ModelConfig& config, int64_t layer, const Parameters& p, const Splits& splits)
    : shape_(delta_shape(config.delta)),
      eps_(config.rms_norm_eps),
      layer_(layer),
      w_in_(*p.w_in, nullptr, splits, Parallel::column),
      w_out_(*p.w_out, nullptr, splits, Parallel::row),
      conv_(p.conv),
      a_log_(p.a_log),
      dt_bias_(p.dt_bias),
      norm_(p.norm) {
  CHECK(splits.tp_ranks() == 1 && splits.cp_ranks() == 1, "a gated delta net over {} ranks of tp, {} of cp",
        splits.tp_ranks(), splits.cp_ranks());
}

void DeltaNet::convolve(Ctx& c, const Batch& b, const Tensor& y, const CTensor& projected) const {
  if (b.kv)
    causal_conv_paged(c, y, *b.states, layer_, projected, conv_->value, b.cu_seqlens);
  else
    causal_conv_forward(c, y, projected, conv_->value, b.cu_seqlens);
}

Tensor DeltaNet::forward(Ctx& c, const Batch& b, CTensor x, DeltaNetSaved* saved, const Keep& keep) const {
  CHECK(!b.kv || b.states, "pages of keys without states of gated delta nets");
  const int64_t tokens = b.num_tokens();
  const DType accumulate = accumulate_dtype(x.dtype);
  Arena &memory = keep.for_products(c), &rest = keep.for_rest(c);
  DeltaNetSaved s;
  s.x = x;
  s.projected = w_in_.forward(c, x, memory, b.stream());
  s.qkv = rest.make({tokens, shape_.qkv_width()}, x.dtype);
  convolve(c, b, s.qkv, s.projected);
  unit_heads_forward(c, s.qkv, shape_);
  s.beta = memory.make({tokens, shape_.value_heads}, accumulate);
  s.g = memory.like(s.beta);
  delta_gates_forward(c, s.beta, s.g, s.projected, a_log_->value, dt_bias_->value, shape_);
  s.mixed = memory.make({tokens, shape_.value_width()}, x.dtype);
  if (b.kv) {
    delta_rule_paged(c, s.mixed, *b.states, layer_, s.qkv, s.beta, s.g, b.cu_seqlens, shape_);
  } else {
    s.u = memory.like(s.mixed);
    s.decays = memory.like(s.beta);
    delta_rule_forward(c, s.mixed, s.u, s.decays, s.qkv, s.beta, s.g, b.cu_seqlens, shape_);
  }
  s.rstd = memory.like(s.beta);
  s.out = rest.like(s.mixed);
  gated_norm_forward(c, s.out, s.rstd, s.mixed, s.projected, norm_->value, shape_, eps_);
  const Tensor out = s.out;
  if (!keep.rest) s.x = {}, s.qkv = s.out = {};
  if (saved) *saved = s;
  return w_out_.forward(c, out, c.scratch, b.stream());
}

Tensor DeltaNet::backward(Ctx& c, const Batch& b, CTensor dy, CTensor x, const DeltaNetSaved& s) const {
  Tensor out = s.out;
  if (out.empty()) {
    out = c.scratch.like(s.mixed);
    gated_norm_forward(c, out, c.scratch.like(s.rstd), s.mixed, s.projected, norm_->value, shape_, eps_);
  }
  const Tensor dmixed = w_out_.backward(c, dy, out, b.stream()), dprojected = c.scratch.like(s.projected);
  gated_norm_backward(c, dmixed, dprojected, norm_->grad_sum_beside(c), dmixed, s.mixed, s.projected,
                      norm_->value, s.rstd, shape_);
  backward_rule(c, b, dprojected, dmixed, s);
  return w_in_.backward(c, dprojected, x, b.stream());
}

void DeltaNet::backward_rule(Ctx& c, const Batch& b, const Tensor& dprojected, const Tensor& dmixed,
                             const DeltaNetSaved& s) const {
  const Tensor convolved = c.scratch.make({s.projected.dim(0), shape_.qkv_width()}, s.projected.dtype);
  convolve(c, b, convolved, s.projected);
  Tensor qkv = s.qkv;
  if (qkv.empty()) {
    qkv = c.scratch.like(convolved);
    device::copy(c.lane, qkv.raw(), convolved.data, convolved.bytes());
    unit_heads_forward(c, qkv, shape_);
  }
  const Tensor dqkv = c.scratch.like(qkv), dbeta = c.scratch.like(s.beta), dg = c.scratch.like(s.g);
  delta_rule_backward(c, dqkv, dbeta, dg, dmixed, qkv, s.beta, s.u, s.decays, b.cu_seqlens, shape_);
  delta_gates_backward(c, dprojected, a_log_->grad_sum_beside(c), dt_bias_->grad_sum_beside(c), dbeta, dg,
                       s.beta, s.g, s.projected, a_log_->value, dt_bias_->value, shape_);
  unit_heads_backward(c, dqkv, convolved, shape_);
  causal_conv_backward(c, dprojected, conv_->grad_sum_beside(c), dqkv, s.projected, conv_->value,
                       b.cu_seqlens);
}

}  // namespace temper
