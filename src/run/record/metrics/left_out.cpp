#include "src/run/record/metrics/left_out.h"

#include <spdlog/fmt/fmt.h>

namespace temper {
namespace {

double sessions(const std::map<std::string, double>& metrics, EndReason reason) {
  const auto at = metrics.find(fmt::format("rollout/sessions_{}", end_reason_name(reason)));
  return at == metrics.end() ? 0 : at->second;
}

struct Texts {
  const char *what, *remedy;
};

Texts texts_of(EndReason reason) {
  if (reason == EndReason::no_reward)
    return {"a reward",
            "let the program say {\"reward\": NUMBER} in its last line or post it to /reward, or name "
            "functions in reward.functions"};
  return {
      "a request",
      "let the program ask the model that it is given, and where it fails say why on stderr and exit with a "
      "code other than 0: it is told then, and played again where rollout.harness has retries"};
}

}  // namespace

std::string LeftOut::look(int64_t step, const std::map<std::string, double>& metrics) {
  const double without = sessions(metrics, reason_);
  if (told_ || without == 0) return "";
  told_ = true;
  double all = 0;
  for (size_t i = 0; i < kEndReasons.size(); ++i) all += sessions(metrics, static_cast<EndReason>(i));
  const auto [what, remedy] = texts_of(reason_);
  return fmt::format(
      "step {}: {:.0f} of {:.0f} sessions ended without {}: no statistics count them, and they train nothing "
      "(rollout/sessions_{} says how many there are in later steps); {}",
      step, without, all, what, end_reason_name(reason_), remedy);
}

}  // namespace temper
