#pragma once
// Pre-norm decoder layer: h' = h + Mixer(Norm(h)); y = h' + FeedForward(Norm(h')). The residual stream is
// kept in storage precision; each sum is one rounding, made in one pass with the norm that reads it: so a
// layer takes and leaves the stream as two addends. Backward likewise: the gradient past a norm joins the one
// through it before the only rounding.

#include <variant>

#include "src/nn/attention.h"
#include "src/nn/hybrid/delta_net.h"
#include "src/nn/hybrid/gated_attention.h"
#include "src/nn/mlp.h"
#include "src/nn/moe.h"
#include "src/nn/norm.h"

namespace temper {

using Mixer = std::variant<Attention, GatedAttention, DeltaNet>;
using FeedForward = std::variant<Mlp, Moe>;

struct LayerSaved {
  NormSaved attn_norm, mlp_norm;
  std::variant<AttentionSaved, GatedAttentionSaved, DeltaNetSaved> mixer;  // of the same kind as the layer's
  std::variant<MlpSaved, MoeSaved> feed_forward;                           // of the same kind as the layer's
};

/// stream + delta, [T, D] each, or own tokens where ranks share them; no delta before the first layer.
struct Residual {
  Tensor stream, delta;
};

class DecoderLayer {
 public:
  DecoderLayer(Norm attn_norm, Mixer mixer, Norm mlp_norm, FeedForward feed_forward)
      : attn_norm_(attn_norm),
        mixer_(std::move(mixer)),
        mlp_norm_(mlp_norm),
        feed_forward_(std::move(feed_forward)) {}

  /// y = layer(x). The caller's: y, and sum [T, D], which becomes x.stream + x.delta, or is x.stream where
  /// there is no delta. `saved` points to sum and y.stream, and to what is kept.
  void forward(Ctx& c, const Batch& b, const Residual& y, const Residual& x, const Tensor& sum,
               LayerSaved* saved = nullptr, const Keep& keep = {}) const;
  /// dx [T, D] from dy, of the sums; adds to the weight gradients.
  void backward(Ctx& c, const Batch& b, Tensor dx, CTensor dy, const LayerSaved& saved) const;
  /// The part of a rank without tokens where others exchange theirs in the layer, forward or backward.
  void join(Ctx& c, bool backward) const;

 private:
  Norm attn_norm_;
  Mixer mixer_;
  Norm mlp_norm_;
  FeedForward feed_forward_;
};

}  // namespace temper
