#include <algorithm>

#include "src/config/sets/validation_sets.h"
#include "src/core/check.h"
#include "src/core/text/nearest.h"
#include "src/rl/registry.h"
#include "src/rl/validation_metrics.h"
#include "src/run/plan/draft.h"

namespace temper {
namespace {

constexpr const char* kData = "validation.data";

/// The first of the sets that has the name of an earlier one.
void require_names(PlanDraft& d) {
  std::set<std::string> names;
  for (const ValidationSet& set : d.config.validation.data)
    if (!names.insert(name_of(set)).second)
      return d.error(
          kData,
          fmt::format("two sets are called \"{}\"; give one of them another name: {{name = \"...\", "
                      "path = \"{}\"}}",
                      name_of(set), set.path),
          {});
}

/// An error in what a set says of its own is one of validation.data: there is no key for it alone.
void set_error(PlanDraft& d, const ValidationSet& set, const char* key, bool own, const std::string& message,
               std::vector<Json> legal) {
  if (own)
    d.error(kData, fmt::format("set \"{}\", rollout.{}: {}", name_of(set), key, message), {});
  else
    d.error(fmt::format("validation.rollout.{}", key), message, std::move(legal));
}

void require_ids(PlanDraft& d, const ValidationSet& set, const RolloutConfig& r) {
  const int64_t vocabulary = d.facts.vocab_size;
  const auto wrong = [&](int64_t id) {
    return fmt::format("id {} is beyond the vocabulary of {}", id, vocabulary);
  };
  const SamplingOverrides& all = d.config.validation.rollout;
  if (set.rollout.stop_token_ids || all.stop_token_ids)
    for (const int64_t id : r.stop_token_ids)
      if (id >= vocabulary)
        return set_error(d, set, "stop_token_ids", set.rollout.stop_token_ids.has_value(), wrong(id),
                         {Json::array()});
  const bool own = set.rollout.logit_bias.has_value();
  if ((own || all.logit_bias) && !r.logit_bias.empty() && r.logit_bias.rbegin()->first >= vocabulary)
    set_error(d, set, "logit_bias", own, wrong(r.logit_bias.rbegin()->first), {});
}

/// The lengths of one set; nothing where they are wrong.
std::optional<ValidationLengths> set_lengths(PlanDraft& d, const ValidationSet& set) {
  const RolloutConfig r = rollout_of(set, d.config);
  const int64_t most = d.result.plan.context_tokens - 1, tokens = r.max_new_tokens;
  const bool own = set.rollout.max_new_tokens.has_value();
  const bool said = own || d.config.validation.rollout.max_new_tokens;
  if (tokens < 1 || (said && tokens > most)) {
    set_error(d, set, "max_new_tokens", own,
              tokens < 1 ? std::string(
                               "validation generates, and neither this key nor rollout.max_new_tokens is set")
                         : fmt::format("{} new tokens leave no room for a prompt in a context of {}", tokens,
                                       d.result.plan.context_tokens),
              {std::min<int64_t>(256, most), most});
    return std::nullopt;
  }
  if (r.min_new_tokens > tokens) {
    set_error(d, set, "min_new_tokens", set.rollout.min_new_tokens.has_value(),
              fmt::format("no response of set \"{}\" is longer than its {} new tokens: it is {}",
                          name_of(set), tokens, r.min_new_tokens),
              {0, tokens});
    return std::nullopt;
  }
  require_ids(d, set, r);
  const int64_t new_tokens = std::min(tokens, most);
  return ValidationLengths{std::min(r.max_prompt_tokens.value_or(most), most + 1 - new_tokens), new_tokens};
}

void plan_set(PlanDraft& d, const ValidationSet& set) {
  RunPlan& plan = d.result.plan;
  ValidationLengths& lengths = plan.validation_sets.emplace_back();
  const RewardConfig rewards = rewards_of(set, d.config);
  if (rewards.functions.empty() && d.config.rollout.harness.empty()) return;  // programs say rewards, too
  for (const RewardFunctionConfig& function : set.rewards)
    if (const std::string why = reward_defect(function); !why.empty())
      return d.error(kData, fmt::format("set \"{}\", rewards: {}", name_of(set), why), {});
  require_domain_key(d, set.rewards);
  const std::optional<ValidationLengths> found = set_lengths(d, set);
  if (!found) return;
  lengths = *found;
  plan.validates = true;
  plan.validation_longest =
      std::max(plan.validation_longest, lengths.max_prompt_tokens + lengths.max_new_tokens);
  plan.validation_max_prompt_tokens = std::max(plan.validation_max_prompt_tokens, lengths.max_prompt_tokens);
}

/// The names of what a validation of the plan measures.
std::vector<std::string> metric_names(const Config& config, const RunPlan& plan) {
  std::vector<std::string> names;
  const std::vector<ValidationSet>& sets = config.validation.data;
  for (size_t i = 0; i < sets.size(); ++i) {
    const std::string prefix = "val/" + name_of(sets[i]) + "/";
    if (plan.validates_loss)
      for (const char* name : {"loss", "ppl"}) names.push_back(prefix + name);
    if (plan.validation_sets.at(i).max_new_tokens == 0) continue;
    const std::vector<RewardFunctionConfig> functions = rewards_of(sets[i], config).functions;
    const bool reads = std::any_of(functions.begin(), functions.end(),
                                   [](const auto& f) { return make_reward(f)->reads_answers(); });
    for (std::string& name : validation_metric_names(prefix, samples_of(sets[i], config), reads))
      names.push_back(std::move(name));
  }
  return names;
}

void require_metric(PlanDraft& d, const char* key, const std::string& metric) {
  constexpr size_t kMostShown = 12;
  if (metric.empty()) return;
  const RunPlan& plan = d.result.plan;
  if (d.config.validation.every == 0 || !(plan.validates || plan.validates_loss))
    return d.error(
        key, "no validation is made during training, which would measure it (validation.every = 0)", {""});
  const std::vector<std::string> names = metric_names(d.config, plan);
  if (std::find(names.begin(), names.end(), metric) != names.end()) return;
  const std::vector<std::string> shown(
      names.begin(), names.begin() + std::min<std::ptrdiff_t>(kMostShown, std::ssize(names)));
  d.error(
      key,
      fmt::format("validation has no metric \"{}\"{}; it has {}{}", metric, did_you_mean(metric, names),
                  fmt::join(shown, ", "),
                  names.size() > kMostShown ? fmt::format(" and {} more", names.size() - kMostShown) : ""),
      {names.begin(), names.end()});
}

}  // namespace

void require_domain_key(PlanDraft& d, const std::vector<RewardFunctionConfig>& functions) {
  if (!d.config.data.domain_key.empty()) return;
  for (const RewardFunctionConfig& function : functions)
    if (!function.domains.empty())
      return d.error("data.domain_key",
                     fmt::format("the reward \"{}\" names domains, and no key says the domain of a line",
                                 function.part()),
                     {"data_source", "domain"});
}

void plan_validation(PlanDraft& d) {
  const ValidationConfig& v = d.config.validation;
  RunPlan& plan = d.result.plan;
  if (plan.context_tokens < 2) return;  // an error already
  require_names(d);
  plan.validates_loss = d.supervised() && !v.data.empty();
  const bool played = !d.config.rollout.harness.empty();
  const bool rewarded = played || std::any_of(v.data.begin(), v.data.end(), [&](const ValidationSet& set) {
                          return !rewards_of(set, d.config).functions.empty();
                        });
  if (!rewarded) {
    plan.validation_sets.resize(v.data.size());
    if (v.in_run() && !plan.validates_loss)
      d.error(v.every > 0 ? "validation.every" : "validation.at_start",
              v.data.empty() ? "validation.data names no file to validate on"
                             : "validation needs reward.functions to score responses",
              {v.every > 0 ? Json(0) : Json(false)});
    return;
  }
  // Without lengths, and where nothing is validated, that is no error: sft needs none.
  const bool lacks = std::any_of(v.data.begin(), v.data.end(), [&](const ValidationSet& set) {
    return rollout_of(set, d.config).max_new_tokens < 1;
  });
  if (lacks && !v.in_run()) return plan.validation_sets.resize(v.data.size());
  for (const ValidationSet& set : v.data) plan_set(d, set);
}

void plan_goals(PlanDraft& d) {
  const StopWhen& stop = d.config.run.stop_when;
  if (d.result.plan.validation_sets.size() != d.config.validation.data.size()) return;  // errors already
  const bool sound = std::none_of(d.result.errors.begin(), d.result.errors.end(), [](const PlanError& e) {
    return e.key.starts_with("validation.") || e.key == "reward.functions";
  });
  if (!sound) return;
  require_metric(d, "checkpoint.best.metric", d.config.checkpoint.best.metric);
  require_metric(d, "run.stop_when.metric", stop.metric);
  if (!stop.metric.empty() && !stop.at_least)
    d.error("run.stop_when.at_least", "run.stop_when names a metric, and not how much of it is enough",
            {0.9});
  if (stop.metric.empty() && stop.at_least)
    d.error("run.stop_when.metric", "run.stop_when.at_least is given, and no metric that it is of", {});
}

}  // namespace temper
