#pragma once
// Sequences as long as those of a run can be, which fill micro-batches.

#include <array>
#include <cstdint>
#include <vector>

#include "src/rl/types.h"
#include "src/run/plan/plan.h"

namespace temper {

/// A micro-batch of sequences of one length.
struct FullBatch {
  int64_t prompt = 0, response = 0, most = 0;  // tokens of each sequence; sequences
  int64_t rows() const { return prompt + response - 1; }
  int64_t sequences(int64_t budget) const;
  /// A budget of tokens that is not larger than what there is to fill it.
  int64_t tokens(int64_t budget) const;
};

/// Those that take most: of the longest sequences, and of those with the most targets.
std::array<FullBatch, 2> fullest(const RunPlan& plan, int64_t most_sequences);
/// The sequences of a micro-batch of `budget` tokens.
std::vector<Trajectory> filled(const RunPlan& plan, int64_t budget, const FullBatch& of);
/// So many of the longest sequences of a run.
std::vector<Trajectory> longest(const RunPlan& plan, int64_t sequences);

}  // namespace temper
