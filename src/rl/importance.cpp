#include "src/rl/importance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/core/check.h"
#include "src/rl/choices.h"

namespace temper {
namespace {

constexpr double kLargestLogWeight = 20;  // verl's

double bounded_log(double d) { return std::clamp(d, -kLargestLogWeight, kLargestLogWeight); }

ImportanceWeight weight_of(const ImportanceRule& rule, double log_weight) {
  const double weight = std::exp(bounded_log(log_weight));
  if (rule.form == ImportanceRule::Form::truncate)
    return {std::clamp(weight, rule.low, rule.high), weight >= rule.high || weight < rule.low};
  const bool outside = weight < rule.low || weight > rule.high;
  return {outside ? 0 : weight, outside};
}

bool is_rejected(const Trajectory& t, const RejectionRule& rule) {
  double sum = 0, counted = 0, lowest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < t.response.mask.size(); ++i) {
    if (!t.response.mask[i]) continue;
    const double d = bounded_log(t.old_logprobs[i] - t.response.logprobs[i]);
    sum += std::expm1(d) - d;
    lowest = std::min(lowest, d);
    counted += 1;
  }
  if (counted == 0) return false;
  return (rule.mean_k3 > 0 && sum / counted > rule.mean_k3) ||
         (rule.token_below > 0 && std::exp(lowest) < rule.token_below);
}

}  // namespace

ImportanceRule importance_rule(const AlgorithmConfig& c) {
  const std::vector<double>& bounds = c.importance_bounds;
  if (!bounds.empty() && (bounds.size() != 2 || !(bounds[0] >= 0) || !(bounds[1] > bounds[0])))
    fail(Exit::usage, {.what = "illegal value of algorithm.importance_bounds",
                       .where = "algorithm.importance_bounds",
                       .why = fmt::format("[{}] is no lowest and highest weight", fmt::join(bounds, ", ")),
                       .fix = "write two numbers, the first at least 0 and below the second, or []"});
  using Rule = ImportanceRule;
  return {.level =
              static_cast<Rule::Level>(choice_index("algorithm.importance", c.importance, kImportanceLevels)),
          .form = static_cast<Rule::Form>(
              choice_index("algorithm.importance_form", c.importance_form, kImportanceForms)),
          .low = bounds.empty() ? 0 : bounds[0],
          .high = bounds.empty() ? c.tis_cap : bounds[1],
          .on = c.tis_cap > 0};
}

std::vector<ImportanceWeight> importance_weights(const ImportanceRule& rule,
                                                 std::span<const double> old_logprob,
                                                 std::span<const double> sampled_logprob,
                                                 std::span<const double> counted,
                                                 std::span<const int32_t> sequence_begin) {
  const size_t n = old_logprob.size();
  std::vector<ImportanceWeight> weights(n);
  if (!rule.on || sampled_logprob.empty()) return weights;
  const auto d = [&](size_t t) {
    return counted[t] == 0 || old_logprob[t] == sampled_logprob[t] ? 0 : old_logprob[t] - sampled_logprob[t];
  };
  if (rule.level == ImportanceRule::Level::token) {
    for (size_t t = 0; t < n; ++t)
      if (const double log_weight = d(t); log_weight != 0) weights[t] = weight_of(rule, log_weight);
    return weights;
  }
  CHECK(n == 0 || (!sequence_begin.empty() && sequence_begin.back() == std::ssize(old_logprob)),
        "importance weights of sequences, {} borders of {} tokens", sequence_begin.size(), n);
  for (size_t s = 0; s + 1 < sequence_begin.size(); ++s) {
    const auto begin = static_cast<size_t>(sequence_begin[s]),
               end = static_cast<size_t>(sequence_begin[s + 1]);
    double sum = 0, tokens = 0;
    bool off_policy = false;
    for (size_t t = begin; t < end; ++t) {
      sum += d(t);
      off_policy = off_policy || d(t) != 0;
      tokens += counted[t] != 0;
    }
    if (!off_policy) continue;
    const bool mean = rule.level == ImportanceRule::Level::geometric;
    const ImportanceWeight weight = weight_of(rule, mean ? sum / tokens : sum);
    std::fill(weights.begin() + sequence_begin[s], weights.begin() + sequence_begin[s + 1], weight);
  }
  return weights;
}

int64_t reject(std::span<Group> groups, const RejectionRule& rule) {
  int64_t rejected = 0;
  for (Group& group : groups)
    for (Trajectory& t : group.samples) {
      if (t.old_logprobs.empty() || !is_rejected(t, rule)) continue;
      std::fill(t.response.mask.begin(), t.response.mask.end(), uint8_t{0});
      rejected += 1;
    }
  return rejected;
}

}  // namespace temper
