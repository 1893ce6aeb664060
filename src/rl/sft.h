#pragma once
// Supervised fine-tuning: l_t = -lp_t on counted tokens, normalised over the whole update of all ranks.
// No rewards, no reference, no entropy term; which tokens count is the response mask alone.

#include "src/config/algorithm_config.h"
#include "src/rl/algorithm.h"

namespace temper {

class Sft final : public Algorithm {
 public:
  /// Error(Exit::usage) when the aggregation is unknown or needs a maximal response length, which SFT has
  /// not.
  explicit Sft(const AlgorithmConfig& config);

  void shape_rewards(std::span<Group>) const override {}
  void advantages(std::span<Group> groups) const override;  // all 1
  LossResult loss(std::span<const double> logprob, std::span<const double> entropy,
                  const LossInputs& in) const override;
  Metrics metrics(const std::map<std::string, double>& sums) const override;

  Aggregation aggregation() const override { return aggregation_; }
  std::string describe() const override;

 private:
  Aggregation aggregation_;
};

}  // namespace temper
