#include "src/rl/rollout_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper {
namespace {

class Statistic {
 public:
  bool empty() const { return count_ == 0; }
  void add(double value, double times = 1) {
    if (times == 0) return;
    sum_ += times * value;
    count_ += times;
    max_ = std::max(max_, value);
    min_ = std::min(min_, value);
  }
  void write(std::map<std::string, double>& metrics, const std::string& name) const {
    if (empty()) return;
    metrics[name + "/mean"] = mean();
    metrics[name + "/max"] = max_;
    metrics[name + "/min"] = min_;
  }
  double mean() const { return sum_ / count_; }
  double count() const { return count_; }

 private:
  double sum_ = 0, count_ = 0;
  double max_ = -std::numeric_limits<double>::infinity();
  double min_ = std::numeric_limits<double>::infinity();
};

/// So far apart that their variance is infinite.
bool too_far_apart(const Group& group) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Trajectory& t : group.samples) {
    if (t.excluded) continue;
    low = std::min(low, t.reward);
    high = std::max(high, t.reward);
  }
  return high > low &&
         !std::isfinite(static_cast<double>(group.samples.size()) * (high - low) * (high - low));
}

bool has_signal(const Trajectory& t) {
  return t.advantage != 0 ||
         std::any_of(t.advantages.begin(), t.advantages.end(), [](double a) { return a != 0; });
}

/// Over the counted tokens.
void add_advantages(const Trajectory& t, Statistic& advantage) {
  if (t.advantages.empty()) return advantage.add(t.advantage, static_cast<double>(t.counted_tokens()));
  for (size_t i = 0; i < t.advantages.size(); ++i)
    if (t.response.mask[i]) advantage.add(t.advantages[i]);
}

/// Over the counted tokens: log-prob when sampled - that of the teacher.
void add_teacher(const Trajectory& t, Statistic& distance) {
  for (size_t i = 0; i < t.teacher_logprobs.size(); ++i)
    if (t.response.mask[i]) distance.add(t.response.logprobs[i] - t.teacher_logprobs[i]);
}

/// Names with the most samples, at most `most` of them; of equally frequent ones the first by name.
template <class Value>
std::vector<const std::string*> frequent(const std::map<std::string, Value>& all, size_t most) {
  std::vector<std::pair<double, const std::string*>> order;
  for (const auto& [name, value] : all) order.emplace_back(-value.count(), &name);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const std::string*> names;
  for (size_t i = 0; i < std::min(order.size(), most); ++i) names.push_back(order[i].second);
  return names;
}

void write_parts(const std::map<std::string, Statistic>& parts, const std::string& prefix,
                 std::map<std::string, double>& metrics) {
  for (const std::string* name : frequent(parts, kMaxPartNames))
    metrics[prefix + *name + "/mean"] = parts.at(*name).mean();
  if (parts.size() > kMaxPartNames)
    metrics[prefix + "parts_left_out"] = static_cast<double>(parts.size() - kMaxPartNames);
}

struct Domain {
  Statistic score, response;
  std::map<std::string, Statistic> parts;  // by function: what programs name is not told apart
  double cut = 0;

  double count() const { return response.count(); }
  void add(const Trajectory& t) {
    if (!t.excluded) score.add(t.raw_reward);
    for (const auto& [name, value] : t.reward_parts)
      if (name.find('/') == std::string::npos) parts[name].add(value);
    response.add(static_cast<double>(t.response.tokens.size()));
    cut += t.response.finish == FinishReason::length;
  }
};

}  // namespace

std::map<std::string, double> rollout_metrics(std::span<const Group> groups) {
  Statistic score, reward, advantage, response, prompt, teacher;
  std::map<std::string, Statistic> parts;
  double count = 0, cut = 0, excluded = 0, dull = 0, lost = 0;
  for (const Group& group : groups) {
    const bool silent = std::none_of(group.samples.begin(), group.samples.end(),
                                     [](const Trajectory& t) { return has_signal(t); });
    dull += silent;
    lost += silent && too_far_apart(group);
    for (const Trajectory& t : group.samples) {
      if (!t.excluded) add_advantages(t, advantage);
      add_teacher(t, teacher);
      if (!t.is_fork()) {  // a session has one reward
        excluded += t.excluded;
        if (!t.excluded) {
          score.add(t.raw_reward);
          reward.add(t.reward);
        }
        for (const auto& [name, value] : t.reward_parts) parts[name].add(value);
      }
      response.add(static_cast<double>(t.response.tokens.size()));
      prompt.add(static_cast<double>(t.prompt_tokens.size()));
      cut += t.response.finish == FinishReason::length;
      count += 1;
    }
  }
  std::map<std::string, double> metrics;
  if (count == 0) return metrics;
  score.write(metrics, "critic/score");
  reward.write(metrics, "critic/rewards");
  advantage.write(metrics, "critic/advantages");
  response.write(metrics, "response_length");
  prompt.write(metrics, "prompt_length");
  write_parts(parts, "reward/", metrics);
  metrics.merge(domain_metrics("domain/", groups));
  if (!teacher.empty()) metrics["rollout/teacher_kl"] = teacher.mean();
  if (excluded > 0) metrics["reward/excluded"] = excluded;
  if (lost > 0) metrics["reward/signal_lost"] = lost;
  metrics["response_length/clip_ratio"] = cut / count;
  metrics["rollout/no_signal_share"] = dull / static_cast<double>(groups.size());
  return metrics;
}

std::map<std::string, double> domain_metrics(const std::string& prefix, std::span<const Group> groups) {
  std::map<std::string, Domain> domains;
  for (const Group& group : groups)
    for (const Trajectory& t : group.samples)
      if (!t.domain.empty() && !t.is_fork()) domains[t.domain].add(t);
  std::map<std::string, double> metrics;
  for (const std::string* name : frequent(domains, kMaxDomains)) {
    const Domain& domain = domains.at(*name);
    const std::string own = prefix + *name + "/";
    domain.score.write(metrics, own + "score");
    domain.response.write(metrics, own + "response_length");
    metrics[own + "response_length/clip_ratio"] = domain.cut / domain.count();
    metrics[own + "responses"] = domain.count();
    write_parts(domain.parts, own + "reward/", metrics);
  }
  if (domains.size() > kMaxDomains)
    metrics[prefix + "left_out"] = static_cast<double>(domains.size() - kMaxDomains);
  return metrics;
}

}  // namespace temper
