#pragma once
// A loss that looks at whole sequences: l = -w A s, with s = exp(mean over the tokens of lp - lo), the ratio
// of a sequence; w is the weight of its first counted token. What a new algorithm of this kind takes: this
// file and a row.

#include <cmath>

#include "src/rl/algorithm.h"
#include "src/rl/registry.h"

namespace temper {

class SequenceRatio final : public Algorithm {
 public:
  void shape_rewards(std::span<Group>) const override {}
  void advantages(std::span<Group>) const override {}
  LossResult loss(std::span<const double> logprob, std::span<const double>,
                  const LossInputs& in) const override {
    const size_t n = logprob.size();
    LossResult result{std::vector<double>(n), std::vector<double>(n), {}};
    double sum = 0;
    for (size_t s = 0; s + 1 < in.sequence_begin.size(); ++s) {
      const auto begin = static_cast<size_t>(in.sequence_begin[s]),
                 end = static_cast<size_t>(in.sequence_begin[s + 1]);
      if (begin == end) continue;
      double mean = 0;
      for (size_t t = begin; t < end; ++t)
        mean += (logprob[t] - in.old_logprob[t]) / static_cast<double>(end - begin);
      const double term = -in.weight[begin] * in.advantage[begin] * std::exp(mean);
      sum += term;
      for (size_t t = begin; t < end; ++t) result.dlogprob[t] = term / static_cast<double>(end - begin);
    }
    result.sums = {{"actor/loss", sum}};
    return result;
  }
  Metrics metrics(const std::map<std::string, double>& sums) const override { return sums; }
  Aggregation aggregation() const override { return Aggregation::token_mean; }
  std::string describe() const override { return "sequence ratio"; }
};

inline constexpr AlgorithmRow kSequenceRatioRow{
    "sequence-ratio",
    [](const AlgorithmConfig&, const RewardConfig&) -> std::unique_ptr<Algorithm> {
      return std::make_unique<SequenceRatio>();
    }};

}  // namespace temper
