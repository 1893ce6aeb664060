#pragma once
// Cuts the sequences of an update into micro-batches by a token budget and spreads them over dp ranks by a
// cost model. A pure function of lengths, ranks, budget and the cost constants of the config: no clock, no
// free memory. No divisibility is needed: ranks may get different numbers of micro-batches, or none. Ranks:
// longest-processing-time (heaviest sequence to the least loaded rank). Micro-batches of a rank: first fit,
// longest first. A sequence is never cut.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace temper {

/// cost(s) = linear * s + quadratic * s^2: matrix products grow with tokens, attention with token pairs.
struct CostModel {
  double linear = 1.0;
  double quadratic = 1e-4;
  double cost(int64_t tokens) const {
    const double s = static_cast<double>(tokens);
    return linear * s + quadratic * s * s;
  }
};

struct PackPlan {
  /// ranks[r][k] = indices of the sequences in micro-batch k of rank r, ascending.
  std::vector<std::vector<std::vector<int32_t>>> ranks;
  int64_t num_microbatches = 0;  // over all ranks
  double fill = 0;               // tokens / (num_microbatches * budget)
  double imbalance = 0;          // heaviest rank / mean rank - 1, by cost

  std::string to_bytes() const;
  static PackPlan from_bytes(const std::string& bytes);
};

/// The budget for stages of a pipeline, which are idle for (p - 1) / (m + p - 1) of a pass over m
/// micro-batches of a rank: 4 p of them where sequences allow, none of less than `least` tokens, for which
/// products would lose what stages gain, or more than `most`.
int64_t pipeline_budget(std::span<const int64_t> lengths, int num_ranks, int stages, int64_t least,
                        int64_t most);

/// `lengths[i]` tokens of sequence i; 0 leaves it out. A sequence longer than the budget is Exit::usage.
PackPlan plan_packing(std::span<const int64_t> lengths, int num_ranks, int64_t token_budget,
                      const CostModel& model);

}  // namespace temper
