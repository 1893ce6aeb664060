#include "src/nn/hybrid/delta_net.h"

#include <algorithm>

#include "src/ops/hybrid/delta.h"

namespace temper {

static_assert(DeltaConfig::kMostTaps == kMostDeltaTaps);

namespace {

DeltaShape share_of(const DeltaShape& all, int ranks) {
  return {std::max<int64_t>(1, all.key_heads / ranks), all.value_heads / ranks, all.key_dim, all.value_dim};
}

/// A projected row has q, k and v, which the convolution reads; z; b, a.
std::vector<HeadColumns> columns_of(const DeltaShape& s) {
  const HeadColumns keys{s.key_heads, s.key_dim}, values{s.value_heads, s.value_dim}, gates{s.value_heads, 1};
  return {keys, keys, values, values, gates, gates};
}
constexpr size_t kConvolved = 3;

}  // namespace

DeltaShape delta_shape(const DeltaConfig& config, int ranks) {
  return share_of({config.key_heads, config.value_heads, config.key_dim, config.value_dim}, ranks);
}

DeltaNet::DeltaNet(const ModelConfig& config, int64_t layer, const Parameters& p, const Splits& splits)
    : shape_(delta_shape(config.delta, splits.tp_ranks())),
      inputs_(columns_of(shape_), splits.cp),
      outputs_({{shape_.value_heads, shape_.value_dim}}, splits.cp),
      eps_(config.rms_norm_eps),
      layer_(layer),
      w_in_(*p.w_in, nullptr, splits, Parallel::column),
      w_out_(*p.w_out, nullptr, splits, Parallel::row),
      conv_(p.conv),
      a_log_(p.a_log),
      dt_bias_(p.dt_bias),
      norm_(p.norm) {}

DeltaShape DeltaNet::own(const Batch& b) const {
  return inputs_.on(b) ? share_of(shape_, inputs_.ranks()) : shape_;
}

Tensor DeltaNet::own_heads_of(const Batch& b, const Tensor& all) const {
  if (!inputs_.on(b)) return all;
  const int64_t first = outputs_.own_columns(0).begin / shape_.value_dim;
  return rows(all, first, first + own(b).value_heads);
}

/// To `own` [own C, ..], or back.
void DeltaNet::copy_channels(Ctx& c, const Tensor& own, const Tensor& all, bool back) const {
  int64_t at = 0;
  for (size_t kind = 0; kind < kConvolved; ++kind) {
    const FlatRange among_all = inputs_.own_columns(kind);
    const Tensor here = rows(own, at, at + among_all.size()),
                 there = rows(all, among_all.begin, among_all.end);
    device::copy(c.lane, (back ? there : here).raw(), (back ? here : there).data, here.bytes());
    at += among_all.size();
  }
}

Tensor DeltaNet::own_channels(Ctx& c, const Batch& b, const Tensor& all) const {
  if (!inputs_.on(b)) return all;
  const Tensor mine = c.scratch.make({own(b).qkv_width(), all.dim(1)}, all.dtype);
  copy_channels(c, mine, all, /*back=*/false);
  return mine;
}

void DeltaNet::make_inputs(Ctx& c, const Batch& b, const Tensor& qkv, const Tensor& beta, const Tensor& g,
                           const CTensor& projected) const {
  const Tensor a_log = own_heads_of(b, a_log_->value), dt_bias = own_heads_of(b, dt_bias_->value);
  if (b.kv)
    delta_inputs_paged(c, qkv, beta, g, *b.states, layer_, projected, conv_->value, a_log, dt_bias,
                       b.cu_seqlens, own(b));
  else
    delta_inputs_forward(c, qkv, beta, g, projected, own_channels(c, b, conv_->value), a_log, dt_bias,
                         b.cu_seqlens, own(b));
}

Tensor DeltaNet::forward(Ctx& c, const Batch& b, CTensor x, DeltaNetSaved* saved, const Keep& keep) const {
  CHECK(!b.kv || b.states, "pages of keys without states of gated delta nets");
  const DeltaShape shape = own(b);
  const DType accumulate = accumulate_dtype(x.dtype);
  const bool exchanges = inputs_.on(b);
  Arena &memory = keep.for_products(c), &rest = keep.for_rest(c);
  DeltaNetSaved s;
  s.x = x;
  s.projected =
      inputs_.to_heads(c, memory, b, w_in_.forward(c, x, exchanges ? c.scratch : memory, b.stream()),
                       "heads of all tokens, before the convolution");
  const int64_t tokens = s.projected.dim(0);
  s.qkv = rest.make({tokens, shape.qkv_width()}, x.dtype);
  s.beta = memory.make({tokens, shape.value_heads}, accumulate);
  s.g = memory.like(s.beta);
  make_inputs(c, b, s.qkv, s.beta, s.g, s.projected);
  s.mixed = memory.make({tokens, shape.value_width()}, x.dtype);
  if (b.kv) {
    delta_rule_paged(c, s.mixed, *b.states, layer_, s.qkv, s.beta, s.g, b.cu_seqlens, shape);
  } else {
    s.u = memory.like(s.mixed);
    s.decays = memory.like(s.beta);
    delta_rule_forward(c, s.mixed, s.u, s.decays, s.qkv, s.beta, s.g, b.cu_seqlens, shape);
  }
  s.rstd = memory.like(s.beta);
  s.out = finish(c, b, exchanges ? c.scratch : rest, rest, s);
  const Tensor out = s.out;
  if (!keep.rest) s.x = {}, s.qkv = s.out = {};
  if (saved) *saved = s;
  return w_out_.forward(c, out, c.scratch, b.stream());
}

/// Norm and gate; of own tokens and all heads, in `memory`.
Tensor DeltaNet::finish(Ctx& c, const Batch& b, Arena& of_heads, Arena& memory,
                        const DeltaNetSaved& s) const {
  const Tensor out = of_heads.like(s.mixed);
  gated_norm_forward(c, out, s.rstd, s.mixed, s.projected, norm_->value, own(b), eps_);
  return outputs_.to_tokens(c, memory, b, out, "outputs of own tokens");
}

Tensor DeltaNet::backward(Ctx& c, const Batch& b, CTensor dy, CTensor x, const DeltaNetSaved& s) const {
  const Tensor out = s.out.empty() ? finish(c, b, c.scratch, c.scratch, s) : s.out;
  const Tensor dmixed = outputs_.to_heads(c, c.scratch, b, w_out_.backward(c, dy, out, b.stream()),
                                          "gradients of own heads, of all tokens"),
               dprojected = c.scratch.like(s.projected);
  gated_norm_backward(c, dmixed, dprojected, norm_->grad_sum_beside(c), dmixed, s.mixed, s.projected,
                      norm_->value, s.rstd, own(b));
  backward_rule(c, b, dprojected, dmixed, s);
  return w_in_.backward(
      c,
      inputs_.to_tokens(c, c.scratch, b, dprojected, "gradients of own tokens, with sums over shared heads"),
      x, b.stream());
}

void DeltaNet::backward_rule(Ctx& c, const Batch& b, const Tensor& dprojected, const Tensor& dmixed,
                             const DeltaNetSaved& s) const {
  const DeltaShape shape = own(b);
  Tensor qkv = s.qkv;
  if (qkv.empty()) {
    qkv = c.scratch.make({s.projected.dim(0), shape.qkv_width()}, s.projected.dtype);
    make_inputs(c, b, qkv, s.beta, s.g, s.projected);  // the gates in their own bits
  }
  const Tensor dqkv = c.scratch.like(qkv), dbeta = c.scratch.like(s.beta), dg = c.scratch.like(s.g);
  delta_rule_backward(c, dqkv, dbeta, dg, dmixed, qkv, s.beta, s.u, s.decays, b.cu_seqlens, shape);
  delta_gates_backward(c, dprojected, own_heads_of(b, a_log_->grad_sum_beside(c)),
                       own_heads_of(b, dt_bias_->grad_sum_beside(c)), dbeta, dg, s.beta, s.g, s.projected,
                       own_heads_of(b, a_log_->value), own_heads_of(b, dt_bias_->value), shape);
  const Tensor dconv = conv_->grad_sum_beside(c), own_dconv = own_channels(c, b, dconv);
  delta_conv_backward(c, dprojected, own_dconv, dqkv, s.projected, own_channels(c, b, conv_->value),
                      b.cu_seqlens, shape);
  if (inputs_.on(b)) copy_channels(c, own_dconv, dconv, /*back=*/true);
}

}  // namespace temper
