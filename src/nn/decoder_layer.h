#pragma once
// Pre-norm decoder layer: h' = h + Attn(Norm(h)); y = h' + Mlp(Norm(h')). The residual stream is kept in
// storage precision; each sum is one rounding, made in one pass with the norm that reads it: so a layer takes
// and leaves the stream as two addends. Backward likewise: the gradient past a norm joins the one through it
// before the only rounding.

#include "src/nn/attention.h"
#include "src/nn/mlp.h"
#include "src/nn/norm.h"

namespace temper {

/// What is not kept for the backward of a layer but computed again, with the same bits: nothing; what
/// products do not give (norms, rope, SwiGLU); all but the stream before the layer.
enum class Recompute { none, selective, full };

/// Of Recompute::full it has attn_norm.x alone: the stream before the layer.
struct LayerSaved {
  NormSaved attn_norm, mlp_norm;
  AttentionSaved attn;
  MlpSaved mlp;
};

/// stream + delta, [T, D] each, or own tokens where ranks share them; no delta before the first layer.
struct Residual {
  Tensor stream, delta;
};

class DecoderLayer {
 public:
  DecoderLayer(Norm attn_norm, Attention attn, Norm mlp_norm, Mlp mlp)
      : attn_norm_(attn_norm), attn_(attn), mlp_norm_(mlp_norm), mlp_(mlp) {}

  /// y = layer(x); y is the caller's. What `saved` holds comes from c.saved; so must y.stream, unless
  /// everything is computed again.
  void forward(Ctx& c, const Batch& b, const Residual& y, const Residual& x, LayerSaved* saved,
               Recompute recompute = Recompute::none) const;
  /// dx [T, D] from dy, of the sums; adds to the weight gradients. Not of a layer that kept its input alone.
  void backward(Ctx& c, const Batch& b, Tensor dx, CTensor dy, const LayerSaved& saved) const;

 private:
  Norm attn_norm_;
  Attention attn_;
  Norm mlp_norm_;
  Mlp mlp_;
};

}  // namespace temper
