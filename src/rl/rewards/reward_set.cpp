#include "src/rl/rewards/reward_set.h"

#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/rl/registry.h"

namespace temper {
namespace {

[[noreturn]] void fail_domain(std::string_view domain, const std::string& where) {
  const std::string why = domain.empty() ? "it has no domain, and every function names domains"
                                         : fmt::format("no function names its domain, \"{}\"", domain);
  fail(Exit::data, {.what = "no reward function applies to a line",
                    .where = where,
                    .why = why,
                    .fix = "add the domain to `domains` of a function in reward.functions, name a function "
                           "without domains, or correct data.domain_key"});
}

/// What a program said counts beside the functions; `alone`: there are none.
void add_session(const SessionNote& session, bool alone, RewardScore& result) {
  if (session.reward) {
    result.parts.emplace_back("harness", *session.reward);
    for (const auto& [name, value] : session.parts) result.parts.emplace_back("harness/" + name, value);
  }
  result.excluded = result.excluded || session.excluded || (alone && !session.reward);
  const double said = session.reward.value_or(0);
  result.raw = result.excluded ? 0 : result.raw + said;
  result.shaped = result.excluded ? 0 : result.shaped + said;
}

}  // namespace

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
      if (earlier.name != function.part()) continue;
      fail(
          Exit::usage,
          {.what = "a reward function is listed twice",
           .where = "reward.functions",
           .why = fmt::format("\"{}\" appears more than once; reward_parts has one value per name",
                              function.part()),
           .fix = "leave one of them out and give the other the summed weight, or give one another name with "
                  "`as`"});
    }
    entries_.push_back({function.part(), function.weight, function.domains, std::move(reward)});
  }
}

bool RewardSet::Entry::applies_to(std::string_view domain) const {
  return domains.empty() || std::find(domains.begin(), domains.end(), domain) != domains.end();
}

RewardScore RewardSet::score(const RewardInput& input, const Trajectory& t) const {
  RewardScore result;
  std::vector<double> shaping;
  bool scored = false;
  for (const Entry& entry : entries_) {
    if (!entry.applies_to(t.domain)) continue;
    scored = true;
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
  if (!scored && !entries_.empty()) fail_domain(t.domain, "a response");
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
                              .response_tokens = t.counted_tokens(),
                              .finish_reason = t.response.finish,
                              .record = record},
                             t);
  if (t.session) add_session(*t.session, entries_.empty(), result);
  if (t.session && result.excluded && t.session->end_reason == "done") t.session->end_reason = "no_reward";
  t.raw_reward = result.raw;
  t.reward = result.shaped;
  t.reward_parts = std::move(result.parts);
  t.excluded = result.excluded;
}

void RewardSet::check_answer(std::string_view answer, const std::string& where,
                             std::string_view domain) const {
  bool applies = false;
  for (const Entry& entry : entries_) {
    if (!entry.applies_to(domain)) continue;
    applies = true;
    entry.reward->check_answer(answer, where);
  }
  if (!applies && !entries_.empty()) fail_domain(domain, where);
}

std::string RewardSet::unmatched(std::string_view answer, std::string_view domain) const {
  for (const Entry& entry : entries_)
    if (const std::string why = entry.applies_to(domain) ? entry.reward->unmatched(answer) : ""; !why.empty())
      return fmt::format("\"{}\": {}", entry.name, why);
  return "";
}

std::optional<std::string> RewardSet::answer_in(const Trajectory& t) const {
  for (const Entry& entry : entries_)
    if (auto answer = entry.applies_to(t.domain) ? entry.reward->answer_in(t.response.text) : std::nullopt)
      return answer;
  return std::nullopt;
}

bool RewardSet::reads_answers() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.reward->reads_answers(); });
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
