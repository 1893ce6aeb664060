#pragma once
// Metrics of a set of prompts with n samples each; `right`: the raw reward is at least 1.
//   score/{mean,max,min}               raw rewards of all samples
//   avg@n = mean over prompts of the mean raw reward of their samples; prompts without a reward are left out
//   pass@k = mean over prompts of 1 - C(n - c, k) / C(n, k), c of the n samples being right: the chance that
//            one of k samples drawn without replacement is (k = 1, 2, 4, ... below n, and n)
//   maj@n = share of prompts whose most frequent answer is right: of equally frequent ones the one that was
//           said first, right as its first sample is. Only where the rewards read answers; samples without
//           an answer or a reward have no vote, and a prompt without votes is not right
//   response_length/{mean,clip_ratio}  tokens; share that was cut at the limit
// Samples without a reward count in no score and avg, and are not right. Sums go left to right in order of
// prompt and sample, in double.

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/rl/types.h"

namespace temper {

/// The k of pass@k, ascending; n is the last.
std::vector<int64_t> pass_counts(int64_t n);
double pass_at(int64_t n, int64_t right, int64_t k);

/// The answer that a response gives; nothing where there is none, or none is looked for.
using AnswerOf = std::function<std::optional<std::string>(const Trajectory&)>;

/// Each name with `prefix` before it. `n`: samples of a prompt. `answer_of` empty: no maj@n.
std::map<std::string, double> validation_metrics(const std::string& prefix, std::span<const Group> groups,
                                                 int64_t n, const AnswerOf& answer_of);
/// The names that it gives where some sample has a reward.
std::vector<std::string> validation_metric_names(const std::string& prefix, int64_t n, bool reads_answers);

}  // namespace temper
