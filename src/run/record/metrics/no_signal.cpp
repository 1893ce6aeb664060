#include "src/run/record/metrics/no_signal.h"

#include <spdlog/fmt/fmt.h>

namespace temper {
namespace {

constexpr int64_t kEnough = 5;  // steps

bool is(const std::map<std::string, double>& metrics, const char* name, double value) {
  const auto at = metrics.find(name);
  return at != metrics.end() && at->second == value;
}

}  // namespace

std::string NoSignal::look(int64_t step, const std::map<std::string, double>& metrics) {
  alike_ = is(metrics, "rollout/no_signal_share", 1) ? alike_ + 1 : 0;
  still_ = is(metrics, "actor/grad_norm", 0) || is(metrics, "train/grad_norm", 0) ? still_ + 1 : 0;
  if (told_ || (alike_ < kEnough && still_ < kEnough)) return "";
  told_ = true;
  const std::string steps = fmt::format("no signal in steps {} to {}", step - kEnough + 1, step);
  if (alike_ < kEnough) return steps + ": the gradient is zero; look at data, masks and optimizer.lr";
  return steps +
         ": all samples of each prompt earned the same reward; look at rollouts/ and the reward, raise "
         "rollout.samples_per_prompt or rollout.temperature, or take easier or harder prompts";
}

}  // namespace temper
