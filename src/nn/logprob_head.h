#pragma once
// Hidden states -> log-probability and entropy of target tokens, and its backward; and sampling with the very
// same log-probability. Logits never leave the kernels behind it.

#include <span>

#include "src/core/ctx.h"
#include "src/nn/parallel/tensor_parallel.h"
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
  /// `splits`: each rank has its chunks of the vocabulary; results are the same on all of them.
  explicit LogprobHead(Parameter& weight, const Splits& splits = {}) : weight_(&weight), splits_(splits) {}

  /// hidden [n, D], targets [n] i32.
  TokenStats forward(Ctx& c, CTensor hidden, CTensor targets, double temperature) const {
    const DType dtype = accumulate_dtype(hidden.dtype);
    const int64_t n = hidden.dim(0);
    TokenStats s{c.scratch.make({n}, dtype), c.scratch.make({n}, dtype), c.scratch.make({n}, dtype)};
    if (split())
      forward_shared(c, s, hidden, targets, temperature);
    else
      logprob_forward(c, s.logprob, s.entropy, s.lse, hidden, weight_->value, targets, temperature);
    return s;
  }
  /// dhidden [n, D] is overwritten; adds to the head's weight gradient.
  void backward_into(Ctx& c, Tensor dhidden, CTensor dlogprob, CTensor dentropy, CTensor hidden,
                     CTensor targets, const TokenStats& stats, double temperature) const {
    const auto backward = [&](const Tensor& dx) {
      const Tensor dweight = weight_->has_grad() ? weight_->grad_sum(c.lane) : Tensor{};
      logprob_backward(c, dx, dweight, dlogprob, dentropy, hidden, weight_->value, targets, stats.lse,
                       stats.entropy, temperature, share());
    };
    if (!split()) return backward(dhidden);
    ArenaScope scope(c.scratch);
    const Tensor part = c.scratch.make({dhidden.dim(0), dhidden.dim(1)}, accumulate_dtype(dhidden.dtype));
    backward(part);
    sum_parts(c, *splits_.tp, dhidden, part);
  }
  /// One token per row of hidden; ids >= num_sampleable are never drawn. Ranks that share the vocabulary have
  /// the same rows and draw the same tokens.
  Sampled sample(Ctx& c, CTensor hidden, SampleRows rows, int64_t num_sampleable) const {
    Sampled s{c.scratch.make({hidden.dim(0)}, DType::i32),
              c.scratch.make({hidden.dim(0)}, accumulate_dtype(hidden.dtype))};
    sample_into(c, s, hidden, rows, num_sampleable);
    return s;
  }
  void sample_into(Ctx& c, const Sampled& s, CTensor hidden, SampleRows rows, int64_t num_sampleable) const {
    temper::sample(c, s.tokens, s.logprob, hidden, weight_->value, rows, num_sampleable, share(),
                   [&](const SampleChunks& all) {
                     if (split()) gather_samples(c, *splits_.tp, all, share().ids);
                   });
  }

 private:
  bool split() const { return splits_.tp_ranks() > 1; }
  VocabularyShare share() const { return {weight_->spans.front().whole, weight_->spec.shape[0]}; }
  void forward_shared(Ctx& c, const TokenStats& s, CTensor hidden, CTensor targets,
                      double temperature) const {
    ArenaScope scope(c.scratch);
    const int64_t n = hidden.dim(0), first = num_chunks(share().first);
    const Tensor all = c.scratch.make({num_chunks(share().ids), n, 3}, s.lse.dtype),
                 logits = c.scratch.like(s.lse);
    logprob_stats(c, rows(all, first, first + num_chunks(weight_->value.dim(0))), logits, hidden,
                  weight_->value, targets, temperature, share());
    gather_stats(c, *splits_.tp, all, logits, share().ids);
    logprob_merge(c, s.logprob, s.entropy, s.lse, all, logits);
  }

  Parameter* weight_;
  Splits splits_;
};

}  // namespace temper
