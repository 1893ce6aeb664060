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

/// The means of the parts that most samples have, of equally frequent ones the first by name.
void write_parts(const std::map<std::string, Statistic>& parts, std::map<std::string, double>& metrics) {
  std::vector<std::pair<double, const std::string*>> order;
  for (const auto& [name, part] : parts) order.emplace_back(-part.count(), &name);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < std::min(order.size(), kMaxPartNames); ++i)
    metrics["reward/" + *order[i].second + "/mean"] = parts.at(*order[i].second).mean();
  if (order.size() > kMaxPartNames)
    metrics["reward/parts_left_out"] = static_cast<double>(order.size() - kMaxPartNames);
}

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
      excluded += t.excluded;
      if (!t.excluded) {
        score.add(t.raw_reward);
        reward.add(t.reward);
        add_advantages(t, advantage);
      }
      add_teacher(t, teacher);
      for (const auto& [name, value] : t.reward_parts) parts[name].add(value);
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
  write_parts(parts, metrics);
  if (!teacher.empty()) metrics["rollout/teacher_kl"] = teacher.mean();
  if (excluded > 0) metrics["reward/excluded"] = excluded;
  if (lost > 0) metrics["reward/signal_lost"] = lost;
  metrics["response_length/clip_ratio"] = cut / count;
  metrics["rollout/no_signal_share"] = dull / static_cast<double>(groups.size());
  return metrics;
}

}  // namespace temper
