#include "src/rl/sft.h"

#include "src/core/check.h"
#include "src/rl/choices.h"

namespace temper {

Sft::Sft(const AlgorithmConfig& c)
    : aggregation_(
          static_cast<Aggregation>(choice_index("algorithm.aggregation", c.aggregation, kAggregations))) {
  if (aggregation_ != Aggregation::seq_mean_token_sum_norm) return;
  fail(Exit::usage,
       {.what = "algorithm.aggregation does not go with algorithm.name = \"sft\"",
        .where = "algorithm.aggregation",
        .why = "\"seq-mean-token-sum-norm\" divides by rollout.max_new_tokens; SFT has no rollout",
        .fix = "write \"token-mean\", \"seq-mean-token-mean\", \"seq-mean-token-sum\" or \"token-sum\""});
}

void Sft::advantages(std::span<Group> groups) const {
  for (Group& group : groups) {
    for (Trajectory& t : group.samples) t.advantage = 1;
  }
}

LossResult Sft::loss(std::span<const double> logprob, std::span<const double>, const LossInputs& in) const {
  const size_t n = logprob.size();
  CHECK(in.weight.size() == n, "loss of {} tokens: {} weights", n, in.weight.size());
  LossResult result{std::vector<double>(n), std::vector<double>(n), {}};
  double sum = 0;
  for (size_t t = 0; t < n; ++t) {
    if (in.weight[t] == 0) continue;
    sum -= in.weight[t] * logprob[t];
    result.dlogprob[t] = -in.weight[t];
  }
  result.sums = {{"train/loss", sum}};
  return result;
}

Metrics Sft::metrics(const std::map<std::string, double>& sums) const {
  return {{"train/loss", sums.at("train/loss")}};
}

std::string Sft::describe() const {
  return fmt::format("sft: -log p of response tokens, {}", kAggregations[static_cast<size_t>(aggregation_)]);
}

}  // namespace temper
