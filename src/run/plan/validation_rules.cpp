#include <algorithm>

#include "src/config/sets/validation_sets.h"
#include "src/core/check.h"
#include "src/core/text/nearest.h"
#include "src/rl/registry.h"
#include "src/rl/validation_metrics.h"
#include "src/run/plan/rules.h"

namespace temper {
namespace {

constexpr const char* kData = "validation.data";

/// The first of the sets that has the name of an earlier one.
void require_names(const std::vector<ValidationSet>& sets, Findings& found) {
  std::set<std::string> names;
  for (const ValidationSet& set : sets)
    if (!names.insert(name_of(set)).second)
      return found.error(
          kData,
          fmt::format("two sets are called \"{}\"; give one of them another name: {{name = \"...\", "
                      "path = \"{}\"}}",
                      name_of(set), set.path),
          {});
}

/// An error in what a set says of its own is one of validation.data: there is no key for it alone.
void set_error(const ValidationSet& set, const char* key, bool own, const std::string& message,
               std::vector<Json> legal, Findings& found) {
  if (own)
    found.error(kData, fmt::format("set \"{}\", rollout.{}: {}", name_of(set), key, message), {});
  else
    found.error(fmt::format("validation.rollout.{}", key), message, std::move(legal));
}

void require_ids(const ValidationSet& set, const Config& config, int64_t vocabulary, Findings& found) {
  const RolloutConfig r = rollout_of(set, config);
  const auto wrong = [&](int64_t id) {
    return fmt::format("id {} is beyond the vocabulary of {}", id, vocabulary);
  };
  const SamplingOverrides& all = config.validation.rollout;
  if (set.rollout.stop_token_ids || all.stop_token_ids)
    for (const int64_t id : r.stop_token_ids)
      if (id >= vocabulary)
        return set_error(set, "stop_token_ids", set.rollout.stop_token_ids.has_value(), wrong(id),
                         {Json::array()}, found);
  const bool own = set.rollout.logit_bias.has_value();
  if ((own || all.logit_bias) && !r.logit_bias.empty() && r.logit_bias.rbegin()->first >= vocabulary)
    set_error(set, "logit_bias", own, wrong(r.logit_bias.rbegin()->first), {}, found);
}

/// The lengths of one set; nothing where they are wrong.
ValidationLengths set_lengths(const ValidationSet& set, const Config& config, const RunPlan& plan,
                              Findings& found) {
  const RolloutConfig r = rollout_of(set, config);
  const int64_t most = plan.lengths.context - 1, tokens = r.max_new_tokens;
  const bool own = set.rollout.max_new_tokens.has_value();
  const bool said = own || config.validation.rollout.max_new_tokens;
  if (tokens < 1 || (said && tokens > most)) {
    set_error(set, "max_new_tokens", own,
              tokens < 1 ? std::string(
                               "validation generates, and neither this key nor rollout.max_new_tokens is set")
                         : fmt::format("{} new tokens leave no room for a prompt in a context of {}", tokens,
                                       plan.lengths.context),
              {std::min<int64_t>(256, most), most}, found);
    return {};
  }
  if (r.min_new_tokens > tokens) {
    set_error(set, "min_new_tokens", set.rollout.min_new_tokens.has_value(),
              fmt::format("no response of set \"{}\" is longer than its {} new tokens: it is {}",
                          name_of(set), tokens, r.min_new_tokens),
              {0, tokens}, found);
    return {};
  }
  require_ids(set, config, plan.vocab_size, found);
  const int64_t new_tokens = std::min(tokens, most);
  return {std::min(r.max_prompt_tokens.value_or(most), most + 1 - new_tokens), new_tokens};
}

/// What a set generates, where it has rewards; nothing where it has none, or wrong ones.
ValidationLengths plan_set(const ValidationSet& set, const Config& config, const RunPlan& plan,
                           Findings& found) {
  const RewardConfig rewards = rewards_of(set, config);
  if (rewards.functions.empty() && config.rollout.harness.empty()) return {};  // programs say rewards, too
  for (const RewardFunctionConfig& function : set.rewards)
    if (const std::string why = reward_defect(function); !why.empty()) {
      found.error(kData, fmt::format("set \"{}\", rewards: {}", name_of(set), why), {});
      return {};
    }
  require_domain_key(config, set.rewards, found);
  return set_lengths(set, config, plan, found);
}

/// The names of what a validation of the plan measures.
std::vector<std::string> metric_names(const Config& config, const RunPlan& plan) {
  std::vector<std::string> names;
  const std::vector<ValidationSet>& sets = config.validation.data;
  for (size_t i = 0; i < sets.size(); ++i) {
    const std::string prefix = "val/" + name_of(sets[i]) + "/";
    if (plan.validation.loss)
      for (const char* name : {"loss", "ppl"}) names.push_back(prefix + name);
    if (plan.validation.sets.at(i).max_new == 0) continue;
    const std::vector<RewardFunctionConfig> functions = rewards_of(sets[i], config).functions;
    const bool reads = std::any_of(functions.begin(), functions.end(),
                                   [](const auto& f) { return make_reward(f)->reads_answers(); });
    for (std::string& name : validation_metric_names(prefix, samples_of(sets[i], config), reads))
      names.push_back(std::move(name));
  }
  return names;
}

void require_metric(const Config& config, const RunPlan& plan, const char* key, const std::string& metric,
                    Findings& found) {
  constexpr size_t kMostShown = 12;
  if (metric.empty()) return;
  if (config.validation.every == 0 || !(plan.validation.generates || plan.validation.loss))
    return found.error(
        key, "no validation is made during training, which would measure it (validation.every = 0)", {""});
  const std::vector<std::string> names = metric_names(config, plan);
  if (std::find(names.begin(), names.end(), metric) != names.end()) return;
  const std::vector<std::string> shown(
      names.begin(), names.begin() + std::min<std::ptrdiff_t>(kMostShown, std::ssize(names)));
  found.error(
      key,
      fmt::format("validation has no metric \"{}\"{}; it has {}{}", metric, did_you_mean(metric, names),
                  fmt::join(shown, ", "),
                  names.size() > kMostShown ? fmt::format(" and {} more", names.size() - kMostShown) : ""),
      {names.begin(), names.end()});
}

}  // namespace

void require_domain_key(const Config& config, const std::vector<RewardFunctionConfig>& functions,
                        Findings& found) {
  if (!config.data.domain_key.empty()) return;
  for (const RewardFunctionConfig& function : functions)
    if (!function.domains.empty())
      return found.error("data.domain_key",
                         fmt::format("the reward \"{}\" names domains, and no key says the domain of a line",
                                     function.part()),
                         {"data_source", "domain"});
}

ValidationPlan plan_validation(const Config& config, const RunPlan& plan, Findings& found) {
  const ValidationConfig& v = config.validation;
  ValidationPlan validation;
  if (plan.lengths.context < 2) return validation;  // an error already
  require_names(v.data, found);
  validation.loss = !plan.generates && !v.data.empty();
  const bool played = !config.rollout.harness.empty();
  const bool rewarded = played || std::any_of(v.data.begin(), v.data.end(), [&](const ValidationSet& set) {
                          return !rewards_of(set, config).functions.empty();
                        });
  if (!rewarded) {
    validation.sets.resize(v.data.size());
    if (v.in_run() && !validation.loss)
      found.error(v.every > 0 ? "validation.every" : "validation.at_start",
                  v.data.empty() ? "validation.data names no file to validate on"
                                 : "validation needs reward.functions to score responses",
                  {v.every > 0 ? Json(0) : Json(false)});
    return validation;
  }
  // Without lengths, and where nothing is validated, that is no error: sft needs none.
  const bool lacks = std::any_of(v.data.begin(), v.data.end(), [&](const ValidationSet& set) {
    return rollout_of(set, config).max_new_tokens < 1;
  });
  validation.sets.resize(v.data.size());
  if (lacks && !v.in_run()) return validation;
  for (size_t i = 0; i < v.data.size(); ++i) validation.sets[i] = plan_set(v.data[i], config, plan, found);
  for (const ValidationLengths& set : validation.sets) {
    validation.generates = validation.generates || set.max_new > 0;
    validation.longest = std::max(validation.longest, set.max_prompt + set.max_new);
    validation.max_prompt = std::max(validation.max_prompt, set.max_prompt);
  }
  return validation;
}

void check_goals(const Config& config, const RunPlan& plan, Findings& found) {
  const StopWhen& stop = config.run.stop_when;
  if (plan.validation.sets.size() != config.validation.data.size()) return;  // errors already
  const bool sound = std::none_of(found.errors.begin(), found.errors.end(), [](const PlanError& e) {
    return e.key.starts_with("validation.") || e.key == "reward.functions";
  });
  if (!sound) return;
  require_metric(config, plan, "checkpoint.best.metric", config.checkpoint.best.metric, found);
  require_metric(config, plan, "run.stop_when.metric", stop.metric, found);
  if (!stop.metric.empty() && !stop.at_least)
    found.error("run.stop_when.at_least", "run.stop_when names a metric, and not how much of it is enough",
                {0.9});
  if (stop.metric.empty() && stop.at_least)
    found.error("run.stop_when.metric", "run.stop_when.at_least is given, and no metric that it is of", {});
}

}  // namespace temper
