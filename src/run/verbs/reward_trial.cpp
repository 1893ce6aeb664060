#include "src/run/verbs/reward_trial.h"

#include "src/core/check.h"
#include "src/core/stopwatch.h"
#include "src/core/text/answer_text.h"
#include "src/rl/rewards/reward_set.h"
#include "src/run/record/run_log.h"

namespace temper {

std::string trial_response(const Prompt& first) {
  const std::vector<std::string> right = right_answers(first.answer);
  return right.empty() ? std::string(shown_answer(first.answer)) : right[0];
}

Json try_rewards(const Config& config, const Prompt& first, const Json& record) {
  Helpers helpers;
  start_log("", config.log.level, 0, /*on_stderr=*/true);
  Trajectory t;
  t.prompt = first.text;
  t.answer = first.answer;
  t.domain = first.domain;
  t.response.text = trial_response(first);
  RewardConfig once = config.reward;
  for (RewardFunctionConfig& function : once.functions)
    if (function.name == "command") function.strings["on_error"] = "exclude";
  const RewardSet rewards(once, &helpers);
  const Stopwatch watch;
  rewards.score(t, record);
  Json parts = Json::object();
  for (const auto& [name, value] : t.reward_parts) parts[name] = value;
  return {{"prompt", t.prompt},
          {"response", t.response.text},
          {"reward", t.excluded ? Json() : Json(t.reward)},
          {"parts", std::move(parts)},
          {"seconds", watch.seconds()}};
}

std::string trial_text(const Json& trial) {
  std::string text = fmt::format("reward of the first prompt, with its answer as the response, in {:.2f} s\n",
                                 trial.at("seconds").get<double>());
  for (const char* key : {"prompt", "response", "reward", "parts"})
    text += fmt::format("  {:<26} {}\n", key, dump_json_line(trial.at(key)));
  return text;
}

}  // namespace temper
