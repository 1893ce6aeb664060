#include "src/rl/rewards/command/command.h"

#include <array>

#include "src/core/check.h"
#include "src/core/log.h"
#include "src/core/text/answer_text.h"
#include "src/rl/rollout_metrics.h"

namespace temper {
namespace {

constexpr std::array<std::string_view, 3> kOnError{"exclude", "zero", "stop"};  // order of OnError
constexpr double kMostCalls = 256;  // of a rank at once: each has a thread that waits for it

}  // namespace

CommandReward::CommandReward(RewardOptions& options) {
  options_.argv = options.texts("argv");
  options_.workers = options.integer("workers", 1, {1, kMostCalls});
  options_.in_flight =
      options.integer("in_flight", 1, {1, std::floor(kMostCalls / static_cast<double>(options_.workers))});
  options_.limit_seconds = options.number("limit_seconds", options_.limit_seconds, {0.01, 86400});
  on_error_ = static_cast<OnError>(options.choice("on_error", kOnError[0], kOnError));
  if (Helpers* helpers = options.helpers()) pool_ = std::make_unique<CommandPool>(*helpers, options_);
}

Verdict CommandReward::score(const RewardInput& input) const {
  CHECK(pool_, "a command reward without helpers");
  CommandAnswer answer = pool_->ask({{"prompt", input.prompt},
                                     {"response", input.response},
                                     {"answer", shown_answer(input.answer)},
                                     {"record", input.record}});
  if (answer.failure == CommandFailure::none) {
    note_parts(answer.verdict);
    return std::move(answer.verdict);
  }
  if (on_error_ == OnError::zero) return 0;
  if (on_error_ == OnError::exclude) return {};
  fail(Exit::data, {.what = "a reward program gave no reward",
                    .where = fmt::format("{}", fmt::join(options_.argv, " ")),
                    .why = answer.why,
                    .fix = "correct the program, raise limit_seconds, or set on_error = \"exclude\""});
}

void CommandReward::note_parts(const Verdict& verdict) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, unused] : verdict.parts) {
    if (part_names_.size() > kMaxPartNames || !part_names_.insert(name).second) continue;
    if (part_names_.size() > kMaxPartNames)
      log::warn(
          "the reward program {:.120} has named more than {} parts: the metrics of a step have those that most "
          "responses have, and count the others (reward/parts_left_out)",
          fmt::format("{}", fmt::join(options_.argv, " ")), kMaxPartNames);
  }
}

void CommandReward::abandon() const {
  if (pool_) pool_->abandon();
}

std::map<std::string, double> CommandReward::end_step() const {
  if (!pool_) return {};
  const CommandCounts c = pool_->end_step();
  return {{"perf/reward_calls", static_cast<double>(c.calls)},
          {"perf/reward_late", static_cast<double>(c.late)},
          {"perf/reward_died", static_cast<double>(c.died)},
          {"perf/reward_nonsense", static_cast<double>(c.nonsense)},
          {"perf/reward_restarts", static_cast<double>(c.restarts)}};
}

}  // namespace temper
