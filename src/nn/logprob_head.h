#pragma once
// Hidden states -> log-probability and entropy of target tokens, and its backward; and sampling with the very
// same log-probability. Logits never leave the kernels behind it.

#include <span>

#include "src/core/ctx.h"
#include "src/nn/parameter.h"
#include "src/ops/head.h"
#include "src/ops/sample.h"

namespace temper {

/// Per row, in the accumulate dtype.
struct TokenStats {
  Tensor logprob, entropy, lse;  // [n]
};

struct Sampled {
  Tensor tokens;   // [n] i32
  Tensor logprob;  // [n]
};

class LogprobHead {
 public:
  explicit LogprobHead(Parameter& weight) : weight_(&weight) {}

  /// hidden [n, D], targets [n] i32.
  TokenStats forward(Ctx& c, CTensor hidden, CTensor targets, double temperature) const {
    const DType dtype = accumulate_dtype(hidden.dtype);
    const int64_t n = hidden.dim(0);
    TokenStats s{c.scratch.make({n}, dtype), c.scratch.make({n}, dtype), c.scratch.make({n}, dtype)};
    logprob_forward(c, s.logprob, s.entropy, s.lse, hidden, weight_->value, targets, temperature);
    return s;
  }
  /// dhidden [n, D] is overwritten; adds to the head's weight gradient.
  void backward_into(Ctx& c, Tensor dhidden, CTensor dlogprob, CTensor dentropy, CTensor hidden,
                     CTensor targets, const TokenStats& stats, double temperature) const {
    logprob_backward(c, dhidden, weight_->grad_sum(c.lane), dlogprob, dentropy, hidden, weight_->value,
                     targets, stats.lse, stats.entropy, temperature);
  }
  /// One token per row of hidden; ids >= num_sampleable are never drawn.
  Sampled sample(Ctx& c, CTensor hidden, SampleRows rows, int64_t num_sampleable) const {
    Sampled s{c.scratch.make({hidden.dim(0)}, DType::i32),
              c.scratch.make({hidden.dim(0)}, accumulate_dtype(hidden.dtype))};
    sample_into(c, s, hidden, rows, num_sampleable);
    return s;
  }
  void sample_into(Ctx& c, const Sampled& s, CTensor hidden, SampleRows rows, int64_t num_sampleable) const {
    temper::sample(c, s.tokens, s.logprob, hidden, weight_->value, rows, num_sampleable);
  }

 private:
  Parameter* weight_;
};

}  // namespace temper
