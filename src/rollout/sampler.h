#pragma once
// Draws the next tokens of sequences: which random numbers, which edits of their logits.

#include <span>
#include <vector>

#include "src/nn/logprob_head.h"
#include "src/rollout/logit_edits.h"
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
  explicit Sampler(const GenerateOptions& options) : options_(options), edits_(options) {}

  const LogitEdits& edits() const { return edits_; }
  /// Logits are changed before the next token of `s` is drawn.
  bool edits_next(const Sequence& s) const { return edits_.any_at(s.new_tokens()); }
  /// How the next token of `s` is drawn, but for its edits.
  SampleRow row(const Sequence& s) const;

  /// hidden: [T, D], the rows of the batch.
  DrawnTokens draw(Ctx& c, const LogprobHead& head, const Tensor& hidden,
                   std::span<const DrawTarget> targets) const;
  /// Error(Exit::numerics) where what was drawn for `s` is no token.
  void require_drawn(const Sequence& s, int32_t token, double logprob) const;

 private:
  const GenerateOptions& options_;
  LogitEdits edits_;
};

}  // namespace temper
