#include "src/rl/rollout_metrics.h"

#include <algorithm>
#include <limits>

namespace temper {
namespace {

class Statistic {
 public:
  void add(double value) {
    sum_ += value;
    max_ = std::max(max_, value);
    min_ = std::min(min_, value);
  }
  void write(std::map<std::string, double>& metrics, const std::string& name, double count) const {
    metrics[name + "/mean"] = sum_ / count;
    metrics[name + "/max"] = max_;
    metrics[name + "/min"] = min_;
  }

 private:
  double sum_ = 0;
  double max_ = -std::numeric_limits<double>::infinity();
  double min_ = std::numeric_limits<double>::infinity();
};

}  // namespace

std::map<std::string, double> rollout_metrics(std::span<const Group> groups) {
  Statistic score, reward, advantage, response, prompt;
  double count = 0, cut = 0;
  for (const Group& group : groups) {
    for (const Trajectory& t : group.samples) {
      score.add(t.raw_reward);
      reward.add(t.reward);
      advantage.add(t.advantage);
      response.add(static_cast<double>(t.response.tokens.size()));
      prompt.add(static_cast<double>(t.prompt_tokens.size()));
      cut += t.response.finish == FinishReason::length;
      count += 1;
    }
  }
  std::map<std::string, double> metrics;
  if (count == 0) return metrics;
  score.write(metrics, "critic/score", count);
  reward.write(metrics, "critic/rewards", count);
  advantage.write(metrics, "critic/advantages", count);
  response.write(metrics, "response_length", count);
  prompt.write(metrics, "prompt_length", count);
  metrics["response_length/clip_ratio"] = cut / count;
  return metrics;
}

}  // namespace temper
