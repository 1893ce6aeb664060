#include "src/nn/decoder_layer.h"

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
  const Tensor dmiddle = mlp_.backward(c, dy, s.mlp);
  mlp_norm_.backward_into(c, dmiddle, dmiddle, dy, s.mlp_norm);
  const Tensor dattended = attn_.backward(c, b, dmiddle, s.attn);
  attn_norm_.backward_into(c, dx, dattended, dmiddle, s.attn_norm);
}

}  // namespace temper
