#pragma once
// Draws the next tokens of sequences: which random numbers, which edits of their logits.

#include <span>
#include <vector>

#include "src/nn/logprob_head.h"
#include "src/rollout/sequence.h"

namespace temper {

/// The next token of `sequence` is drawn from a row of the batch.
struct DrawTarget {
  int32_t row = 0;
  Sequence* sequence = nullptr;
};

/// Token -1: none was left to draw.
struct DrawnTokens {
  std::vector<int32_t> tokens;
  std::vector<double> logprobs;
};

class Sampler {
 public:
  /// Ids from `num_sampleable` on are never drawn.
  explicit Sampler(int64_t num_sampleable) : num_sampleable_(num_sampleable) {}

  /// Logits are changed before the next token of `s` is drawn.
  bool edits_next(const Sequence& s) const { return s.rules->edits.any_at(s.new_tokens()); }
  /// How the next token of `s` is drawn, but for its edits.
  SampleRow row(const Sequence& s) const;

  /// hidden: [T, D], the rows of the batch.
  DrawnTokens draw(Ctx& c, const LogprobHead& head, const Tensor& hidden,
                   std::span<const DrawTarget> targets) const;
  /// Error(Exit::numerics) where what was drawn for `s` is no token.
  void require_drawn(const Sequence& s, int32_t token, double logprob) const;

 private:
  int64_t num_sampleable_;
};

}  // namespace temper
