#pragma once
// Gated delta net (Yang, Kautz, Hatamizadeh, "Gated Delta Networks"): a mixer that keeps a state of fixed
// size in the place of keys and values. Its steps: ops/hybrid/delta.h.
//   in product -> [q k v | z | b | a];  q k v: convolution, unit vectors;  b, a: gates;  rule;  norm by z ->
//   out
// Over tp ranks each has its value heads and the key heads that they read, which neighbours have together if
// there are fewer of these than ranks. Over cp ranks heads are exchanged as in attention, before the
// convolution and after the norm: a state goes through all rows of its sequence on one rank.

#include "src/nn/keep.h"
#include "src/nn/linear.h"
#include "src/nn/model_config.h"
#include "src/nn/parallel/context_parallel.h"

namespace temper {

/// Over cp ranks of all tokens and this rank's heads, but for x and out.
struct DeltaNetSaved {
  CTensor x;         // [T, D] input, or own tokens where ranks share them; empty where it is computed again
  Tensor projected;  // [T, W] as DeltaShape cuts it
  Tensor qkv;        // [T, C] what the rule reads; empty where it is made of `projected` again
  Tensor beta, g;    // [T, Hv]
  Tensor u, decays;  // [T, Hv dv], [T, Hv]
  Tensor mixed;      // [T, Hv dv] what the rule makes
  Tensor rstd;       // [T, Hv] of the norm
  Tensor out;        // [T, Hv dv] after norm and gate; empty where it is made again
};

/// The heads of one of the ranks that share a layer.
DeltaShape delta_shape(const DeltaConfig& config, int ranks = 1);

class DeltaNet {
 public:
  struct Parameters {
    Parameter* w_in = nullptr;
    Parameter* conv = nullptr;
    Parameter* a_log = nullptr;
    Parameter* dt_bias = nullptr;
    Parameter* norm = nullptr;
    Parameter* w_out = nullptr;
  };
  /// `layer`: its number among the layers of this kind, for Batch::states.
  DeltaNet(const ModelConfig& config, int64_t layer, const Parameters& parameters, const Splits& splits = {});

  Tensor forward(Ctx& c, const Batch& b, CTensor x, DeltaNetSaved* saved, const Keep& keep = {}) const;
  /// `x` as in forward.
  Tensor backward(Ctx& c, const Batch& b, CTensor dy, CTensor x, const DeltaNetSaved& saved) const;

 private:
  /// What the steps between the exchanges work on: heads, of `all` [Hv] those of value heads, and of `all`
  /// [C, ..] those of the convolution, in scratch where they are not all.
  DeltaShape own(const Batch& b) const;
  Tensor own_heads_of(const Batch& b, const Tensor& all) const;
  Tensor own_channels(Ctx& c, const Batch& b, const Tensor& all) const;
  void copy_channels(Ctx& c, const Tensor& own, const Tensor& all, bool back) const;
  /// What the rule reads, of projected rows.
  void make_inputs(Ctx& c, const Batch& b, const Tensor& qkv, const Tensor& beta, const Tensor& g,
                   const CTensor& projected) const;
  Tensor finish(Ctx& c, const Batch& b, Arena& of_heads, Arena& memory, const DeltaNetSaved& s) const;
  void backward_rule(Ctx& c, const Batch& b, const Tensor& dprojected, const Tensor& dmixed,
                     const DeltaNetSaved& s) const;

  DeltaShape shape_;
  HeadExchange inputs_, outputs_;
  double eps_;
  int64_t layer_;
  Linear w_in_, w_out_;
  Parameter *conv_, *a_log_, *dt_bias_, *norm_;
};

}  // namespace temper
