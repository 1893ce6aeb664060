#include "src/nn/decoder_layer.h"

#include "src/ops/elementwise.h"

namespace temper {

void DecoderLayer::forward(Ctx& c, const Batch& b, Tensor y, CTensor x, LayerSaved* s) const {
  Tensor normed = attn_norm_.forward(c, x, s ? &s->attn_norm : nullptr);
  Tensor attended = attn_.forward(c, b, normed, s ? &s->attn : nullptr);
  Tensor middle = c.arena.like(x);
  Tensor normed2 = mlp_norm_.forward_sum(c, middle, x, attended, s ? &s->mlp_norm : nullptr);
  Tensor fed = mlp_.forward(c, normed2, s ? &s->mlp : nullptr);
  add(c, y, middle, fed);
}

void DecoderLayer::backward(Ctx& c, const Batch& b, Tensor dx, CTensor dy, const LayerSaved& s) const {
  Tensor dmlp = mlp_.backward(c, dy, s.mlp);
  Tensor dmiddle = mlp_norm_.backward(c, dmlp, s.mlp_norm);
  add(c, dmiddle, dmiddle, dy);
  Tensor dattn = attn_.backward(c, b, dmiddle, s.attn);
  Tensor dnorm = attn_norm_.backward(c, dattn, s.attn_norm);
  add(c, dx, dnorm, dmiddle);
}

}  // namespace temper
