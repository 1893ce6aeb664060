#include "src/rl/validation_metrics.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

namespace temper {
namespace {

bool is_right(const Trajectory& t) { return !t.excluded && t.raw_reward >= 1.0; }

bool majority_is_right(const Group& group, const AnswerOf& answer_of) {
  struct Votes {
    int64_t count = 0;
    bool right = false;
  };
  std::vector<std::pair<std::string, Votes>> said;  // in the order in which they were said first
  for (const Trajectory& t : group.samples) {
    const std::optional<std::string> answer = t.excluded ? std::nullopt : answer_of(t);
    if (!answer) continue;
    auto known = std::find_if(said.begin(), said.end(), [&](const auto& s) { return s.first == *answer; });
    if (known == said.end()) known = said.insert(said.end(), {*answer, {0, is_right(t)}});
    ++known->second.count;
  }
  const auto most = std::max_element(
      said.begin(), said.end(), [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
  return most != said.end() && most->second.right;
}

/// What the groups add up to.
struct Sums {
  double reward = 0, high = -1e300, low = 1e300, tokens = 0, cut = 0, samples = 0, rewarded = 0;
  double averages = 0, averaged = 0, majorities = 0;
  std::vector<double> passed;  // by k

  void add(const Group& group, const std::vector<int64_t>& ks) {
    double own = 0, of_own = 0;
    int64_t right = 0;
    for (const Trajectory& t : group.samples) {
      tokens += static_cast<double>(t.response.tokens.size());
      cut += t.response.finish == FinishReason::length;
      samples += 1;
      right += is_right(t);
      if (t.excluded) continue;
      of_own += 1;
      rewarded += 1;
      own += t.raw_reward;
      reward += t.raw_reward;
      high = std::max(high, t.raw_reward);
      low = std::min(low, t.raw_reward);
    }
    if (of_own > 0) averages += own / of_own;
    averaged += of_own > 0;
    const int64_t n = std::ssize(group.samples);
    for (size_t i = 0; i < ks.size(); ++i) passed[i] += pass_at(n, right, std::min(ks[i], n));
  }
};

}  // namespace

std::vector<int64_t> pass_counts(int64_t n) {
  std::vector<int64_t> ks;
  for (int64_t k = 1; k < n; k *= 2) ks.push_back(k);
  ks.push_back(n);
  return ks;
}

double pass_at(int64_t n, int64_t right, int64_t k) {
  if (n - right < k) return 1;
  double missed = 1;  // C(n - c, k) / C(n, k)
  for (int64_t i = n - right + 1; i <= n; ++i) missed *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - missed;
}

std::map<std::string, double> validation_metrics(const std::string& prefix, std::span<const Group> groups,
                                                 int64_t n, const AnswerOf& answer_of) {
  std::map<std::string, double> m;
  const std::vector<int64_t> ks = pass_counts(n);
  Sums sums;
  sums.passed.resize(ks.size());
  for (const Group& group : groups) {
    sums.add(group, ks);
    if (answer_of) sums.majorities += majority_is_right(group, answer_of);
  }
  if (sums.samples == 0) return m;
  const auto prompts = static_cast<double>(groups.size());
  m[prefix + "response_length/mean"] = sums.tokens / sums.samples;
  m[prefix + "response_length/clip_ratio"] = sums.cut / sums.samples;
  for (size_t i = 0; i < ks.size(); ++i) m[prefix + fmt::format("pass@{}", ks[i])] = sums.passed[i] / prompts;
  if (answer_of) m[prefix + fmt::format("maj@{}", n)] = sums.majorities / prompts;
  if (sums.rewarded == 0) return m;
  m[prefix + "score/mean"] = sums.reward / sums.rewarded;
  m[prefix + "score/max"] = sums.high;
  m[prefix + "score/min"] = sums.low;
  m[prefix + fmt::format("avg@{}", n)] = sums.averages / sums.averaged;
  return m;
}

std::vector<std::string> validation_metric_names(const std::string& prefix, int64_t n, bool reads_answers) {
  std::vector<std::string> names{prefix + fmt::format("avg@{}", n)};
  for (const int64_t k : pass_counts(n)) names.push_back(prefix + fmt::format("pass@{}", k));
  if (reads_answers) names.push_back(prefix + fmt::format("maj@{}", n));
  for (const char* name :
       {"score/mean", "score/max", "score/min", "response_length/mean", "response_length/clip_ratio"})
    names.push_back(prefix + name);
  return names;
}

}  // namespace temper
