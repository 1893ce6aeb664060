#include "src/nn/decoder_layer.h"

#include "src/ops/elementwise.h"

namespace temper {

void DecoderLayer::forward(Ctx& c, const Batch& b, const Residual& y, const Residual& x,
                           LayerSaved* s) const {
  Arena& memory = c.memory(s != nullptr);
  Tensor sum = x.stream;
  if (!x.delta.empty()) sum = memory.like(x.stream);
  const Tensor normed = memory.like(sum), normed2 = memory.like(sum);
  attn_norm_.forward_residual(c, normed, sum, x.stream, x.delta, s ? &s->attn_norm : nullptr);
  const Tensor attended = attn_.forward(c, b, normed, s ? &s->attn : nullptr);
  mlp_norm_.forward_residual(c, normed2, y.stream, sum, attended, s ? &s->mlp_norm : nullptr);
  mlp_.forward_into(c, y.delta, normed2, s ? &s->mlp : nullptr);
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
