#include "src/rl/rewards/reward_set.h"

#include <cmath>

#include "src/core/check.h"
#include "src/rl/registry.h"

namespace temper {

RewardSet::RewardSet(const RewardConfig& config, Helpers* helpers) {
  if (config.functions.empty()) {
    fail(Exit::usage, {.what = "no reward function",
                       .where = "reward.functions",
                       .why = "the list is empty",
                       .fix = "name at least one, for example functions = [\"exact\"]"});
  }
  for (const RewardFunctionConfig& function : config.functions) {
    std::unique_ptr<Reward> reward = make_reward(function, helpers);
    if (!std::isfinite(function.weight)) {
      fail(Exit::usage, {.what = "illegal weight of a reward function",
                         .where = "reward.functions",
                         .why = fmt::format("the weight of \"{}\" is {}", function.name, function.weight),
                         .fix = "write a finite number"});
    }
    for (const Entry& earlier : entries_) {
      if (earlier.name != function.name) continue;
      fail(Exit::usage,
           {.what = "a reward function is listed twice",
            .where = "reward.functions",
            .why = fmt::format("\"{}\" appears more than once; reward_parts has one value per name",
                               function.name),
            .fix = "leave one of them out and give the other the summed weight"});
    }
    entries_.push_back({function.name, function.weight, std::move(reward)});
  }
}

RewardScore RewardSet::score(const RewardInput& input, const Trajectory& t) const {
  RewardScore result;
  std::vector<double> shaping;
  for (const Entry& entry : entries_) {
    std::optional<Verdict> known;
    if (entry.reward->concurrency() > 0) known = recorded_.find(t, entry.name);
    const Verdict verdict = known ? *known : entry.reward->score(input);
    result.excluded = result.excluded || !verdict.value;
    if (!verdict.value) continue;
    const double part = *verdict.value;
    if (!std::isfinite(part)) {
      fail(Exit::numerics,
           {.what = "a reward is not finite",
            .where = fmt::format("reward \"{}\"", entry.name),
            .why = fmt::format("it gave {} for a response of {} tokens", part, input.response_tokens),
            .fix = "check the options of the function"});
    }
    result.parts.emplace_back(entry.name, part);
    for (const auto& [name, value] : verdict.parts) result.parts.emplace_back(entry.name + "/" + name, value);
    if (entry.reward->is_shaping())
      shaping.push_back(entry.weight * part);
    else
      result.raw += entry.weight * part;
  }
  result.shaped = result.raw;
  for (const double term : shaping) result.shaped += term;
  if (result.excluded) result.raw = result.shaped = 0;
  if (!std::isfinite(result.shaped) || !std::isfinite(result.raw)) {
    fail(Exit::numerics, {.what = "the sum of the rewards is not finite",
                          .where = "reward.functions",
                          .why = fmt::format("raw {}, shaped {}", result.raw, result.shaped),
                          .fix = "lower the weights"});
  }
  return result;
}

void RewardSet::score(Trajectory& t, const Json& record) const {
  RewardScore result = score({.prompt = t.prompt,
                              .response = t.response.text,
                              .answer = t.answer,
                              .response_tokens = static_cast<int64_t>(t.response.tokens.size()),
                              .finish_reason = t.response.finish,
                              .record = record},
                             t);
  t.raw_reward = result.raw;
  t.reward = result.shaped;
  t.reward_parts = std::move(result.parts);
  t.excluded = result.excluded;
}

void RewardSet::check_answer(std::string_view answer, const std::string& where) const {
  for (const Entry& entry : entries_) entry.reward->check_answer(answer, where);
}

std::string RewardSet::unmatched(std::string_view answer) const {
  for (const Entry& entry : entries_)
    if (const std::string why = entry.reward->unmatched(answer); !why.empty())
      return fmt::format("\"{}\": {}", entry.name, why);
  return "";
}

int64_t RewardSet::concurrency() const {
  int64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.reward->concurrency();
  return sum;
}

void RewardSet::abandon() const {
  for (const Entry& entry : entries_) entry.reward->abandon();
}

std::map<std::string, double> RewardSet::end_step() const {
  std::map<std::string, double> sums;
  for (const Entry& entry : entries_)
    for (const auto& [name, value] : entry.reward->end_step()) sums[name] += value;
  return sums;
}

}  // namespace temper
