#pragma once
// Attention as in nn/attention.h whose output is multiplied by the sigmoid of a gate, which its first product
// makes beside each query head; q and k have norms by 1 + w, and rope turns the first elements of a head.

#include "src/nn/attention.h"

namespace temper {

struct GatedAttentionSaved {
  CTensor x;         // [T, D] input, or own tokens where ranks share them; empty where it is computed again
  Tensor projected;  // [T, (2Hq+2Hkv)dh] as ops/hybrid/gated_heads.h has it
  Tensor head_rstd;  // [T, Hq+Hkv]
  Tensor qkv;        // [T, (Hq+2Hkv)dh]; empty where it is made of `projected` again
  Tensor attended;   // [T, Hq*dh] before the gate
  Tensor lse;        // [Hq, T]
  Tensor out;        // [T, Hq*dh]; empty where it is made again
  Tensor
      of_heads;  // `attended` of all tokens and this rank's heads, as qkv and lse are then; context parallel
};

class GatedAttention {
 public:
  GatedAttention(const ModelConfig& config, int64_t layer, const Attention::Parameters& parameters,
                 const RopeTensors& rope, const Splits& splits = {});

  Tensor forward(Ctx& c, const Batch& b, CTensor x, GatedAttentionSaved* saved, const Keep& keep = {}) const;
  /// `x` as in forward.
  Tensor backward(Ctx& c, const Batch& b, CTensor dy, CTensor x, const GatedAttentionSaved& saved) const;

 private:
  RopeInput rope_of(const Batch& b) const { return {b.positions, rope_.cosine, rope_.sine}; }

  AttentionShape shape_;
  AttentionExchange exchange_;
  double scale_, eps_;
  int64_t layer_;
  Linear wqkv_, wo_;
  Parameter *q_norm_, *k_norm_;
  const RopeTensors& rope_;
};

}  // namespace temper
