#include "src/nn/decoder_layer.h"

namespace temper {

void DecoderLayer::forward(Ctx& c, const Batch& b, const Residual& y, const Residual& x, LayerSaved* s,
                           Recompute recompute) const {
  Tensor sum = x.stream;
  if (!x.delta.empty()) sum = c.memory(s != nullptr).like(x.stream);
  const bool products = recompute == Recompute::selective;
  LayerSaved* kept = recompute == Recompute::full ? nullptr : s;
  Arena& memory = c.memory(kept && !products);
  const Tensor normed = memory.like(sum), normed2 = memory.like(sum);
  attn_norm_.forward_residual(c, normed, sum, x.stream, x.delta, kept ? &kept->attn_norm : nullptr);
  if (s && !kept) s->attn_norm = {sum, {}};
  const Tensor attended = attn_.forward(c, b, normed, kept ? &kept->attn : nullptr, products);
  mlp_norm_.forward_residual(c, normed2, y.stream, sum, attended, kept ? &kept->mlp_norm : nullptr);
  mlp_.forward_into(c, y.delta, normed2, kept ? &kept->mlp : nullptr, products, b.stream());
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
