#include "src/run/record/metrics/no_reward.h"

#include <spdlog/fmt/fmt.h>

#include "src/agents/sessions/end_reason.h"

namespace temper {
namespace {

double sessions(const std::map<std::string, double>& metrics, EndReason reason) {
  const auto at = metrics.find(fmt::format("rollout/sessions_{}", end_reason_name(reason)));
  return at == metrics.end() ? 0 : at->second;
}

}  // namespace

std::string NoReward::look(int64_t step, const std::map<std::string, double>& metrics) {
  const double without = sessions(metrics, EndReason::no_reward);
  if (told_ || without == 0) return "";
  told_ = true;
  double all = 0;
  for (size_t i = 0; i < kEndReasons.size(); ++i) all += sessions(metrics, static_cast<EndReason>(i));
  return fmt::format(
      "step {}: {:.0f} of {:.0f} sessions ended without a reward: no statistics count them, and they train "
      "nothing (rollout/sessions_no_reward says how many there are in later steps); let the program say "
      "{{\"reward\": NUMBER}} in its last line or post it to /reward, or name functions in reward.functions",
      step, without, all);
}

}  // namespace temper
