#pragma once
// Causal grouped-query attention with rope, optional biases and optional per-head norm of q and k before
// rope. The only place that knows whether keys come from the batch (training, scoring) or from pages
// (rollout): both give the same bits.

#include <optional>

#include "src/nn/keep.h"
#include "src/nn/linear.h"
#include "src/nn/model_config.h"
#include "src/nn/parallel/context_parallel.h"

namespace temper {

/// Cosine and sine of every position and frequency, made once per model.
struct RopeTensors {
  Tensor cosine, sine;  // [positions, dh/2], fp32 (fp64 in fp64 runs)
};

struct AttentionSaved {
  CTensor x;         // [T, D] input, or own tokens where ranks share them; empty where it is computed again
  Tensor projected;  // [T, (Hq+2Hkv)dh] before the head norm; empty without one
  Tensor head_rstd;  // [T, Hq+Hkv]
  Tensor qkv;        // [T, (Hq+2Hkv)dh] after norm and rope; empty where it is made of `projected` again
  Tensor out, lse;   // [T, Hq*dh], [Hq, T]
  Tensor of_heads;   // `out` of all tokens and this rank's heads, as qkv and lse are then; context parallel
  Tensor low_in, low_out;  // of adapters, or empty (Linear::make_low)
};

/// Heads of one of the ranks that share a layer: neighbours have the same head of keys if there are fewer of
/// them than ranks.
AttentionShape attention_shape(const ModelConfig& config, int ranks);

class Attention {
 public:
  struct Parameters {
    Parameter* wqkv = nullptr;
    Parameter* bqkv = nullptr;    // optional
    Parameter* q_norm = nullptr;  // optional, both or none
    Parameter* k_norm = nullptr;
    Parameter* wo = nullptr;
    Parameter* bo = nullptr;  // optional
    Adapter qkv_adapter = {}, o_adapter = {};
  };
  /// `splits`: each rank has its heads; tensors below are of those.
  Attention(const ModelConfig& config, int64_t layer, const Parameters& parameters, const RopeTensors& rope,
            const Splits& splits = {});

  Tensor forward(Ctx& c, const Batch& b, CTensor x, AttentionSaved* saved, const Keep& keep = {}) const;
  /// `x` as in forward.
  Tensor backward(Ctx& c, const Batch& b, CTensor dy, CTensor x, const AttentionSaved& saved) const;

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
