#include "src/nn/decoder_layer.h"

namespace temper {

void DecoderLayer::forward(Ctx& c, const Batch& b, const Residual& y, const Residual& x, const Tensor& sum,
                           LayerSaved* s, const Keep& keep) const {
  Arena& rest = keep.for_rest(c);
  const Tensor normed = rest.like(sum), normed2 = rest.like(sum);
  attn_norm_.forward_residual(c, normed, sum, x.stream, x.delta, s ? &s->attn_norm : nullptr, keep);
  const Tensor attended = attn_.forward(c, b, normed, s ? &s->attn : nullptr, keep);
  mlp_norm_.forward_residual(c, normed2, y.stream, sum, attended, s ? &s->mlp_norm : nullptr, keep);
  mlp_.forward_into(c, y.delta, normed2, s ? &s->mlp : nullptr, keep, b.stream());
}

void DecoderLayer::backward(Ctx& c, const Batch& b, Tensor dx, CTensor dy, const LayerSaved& s) const {
  const CTensor normed2 = s.mlp.x.empty() ? mlp_norm_.again(c, s.mlp_norm) : s.mlp.x;
  const Tensor dmiddle = mlp_.backward(c, dy, normed2, s.mlp, b.stream());
  mlp_norm_.backward_into(c, dmiddle, dmiddle, dy, s.mlp_norm);
  const CTensor normed = s.attn.x.empty() ? attn_norm_.again(c, s.attn_norm) : s.attn.x;
  const Tensor dattended = attn_.backward(c, b, dmiddle, normed, s.attn);
  attn_norm_.backward_into(c, dx, dattended, dmiddle, s.attn_norm);
}

}  // namespace temper
