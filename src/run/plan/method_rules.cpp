// What [algorithm] and the parts that it chooses ask of each other and of the rollout.

#include <algorithm>

#include "src/config/load.h"
#include "src/config/methods.h"
#include "src/config/values.h"
#include "src/core/check.h"
#include "src/run/plan/rules.h"

namespace temper {
namespace {

/// A key that only some parts read.
struct KeyOfPart {
  const char* key;
  bool read;
  std::string by;  // that does not read it
};

/// A value that nothing reads is a mistake, unless it is the default that the name has.
void refuse_unread(Config written, const std::vector<KeyOfPart>& keys, Findings& found) {
  Config defaults = config_defaults(written.algorithm.name);
  const std::vector<Field> fields = config_fields(written), unset = config_fields(defaults);
  for (const KeyOfPart& of : keys) {
    if (of.read) continue;
    const auto value_in = [&](const std::vector<Field>& all) {
      return field_json(
          *std::find_if(all.begin(), all.end(), [&](const Field& f) { return f.key == of.key; }));
    };
    const Json value = value_in(fields), standard = value_in(unset);
    if (value != standard)
      found.error(of.key, fmt::format("{} does not read it, and it is {}", of.by, toml_text(value)),
                  {standard});
  }
}

void check_parts(const Config& config, Findings& found) {
  const AlgorithmConfig& a = config.algorithm;
  const LossTraits& loss = loss_traits(a.loss);
  const AdvantageTraits& advantage = advantage_traits(a.advantage);
  const std::string by_loss = fmt::format("algorithm.loss = \"{}\"", a.loss),
                    by_advantage = fmt::format("algorithm.advantage = \"{}\"", a.advantage),
                    by_weights = "algorithm.tis_cap = 0, without importance weights,";
  refuse_unread(config,
                {{"algorithm.clip_low", loss.clips, by_loss},
                 {"algorithm.clip_high", loss.clips, by_loss},
                 {"algorithm.dual_clip", loss.dual_clips, by_loss},
                 {"algorithm.advantage_std", advantage.scales, by_advantage},
                 {"algorithm.gamma", advantage.discounts, by_advantage},
                 {"algorithm.importance", a.tis_cap > 0, by_weights},
                 {"algorithm.importance_form", a.tis_cap > 0, by_weights},
                 {"algorithm.importance_bounds", a.tis_cap > 0, by_weights},
                 {"algorithm.reject_mean_k3", a.tis_cap > 0, by_weights},
                 {"algorithm.reject_token_below", a.tis_cap > 0, by_weights}},
                found);
  if (a.dual_clip > 0 && a.dual_clip <= 1)
    found.error("algorithm.dual_clip",
                fmt::format("it is {}, and a ratio of 1 is on policy: more than 1, or 0", a.dual_clip),
                {0.0, 3.0});
  const std::vector<double>& bounds = a.importance_bounds;
  if (!bounds.empty() && (bounds.size() != 2 || bounds[0] >= bounds[1]))
    found.error("algorithm.importance_bounds",
                fmt::format("[{}] is no lowest weight and a higher one", fmt::join(bounds, ", ")),
                {Json::array(), Json::array({0.5, 2.0})});
  if (advantage.by_part && a.kl_in == "reward" && a.kl_coef > 0)
    found.error("algorithm.kl_in",
                fmt::format("{} takes the parts of the reward, and the KL is none", by_advantage), {"loss"});
}

/// No reward tells samples apart.
bool taught_alone(const Config& config, const RunPlan& plan) {
  return plan.taught() && config.reward.functions.empty() && config.rollout.harness.empty();
}

void check_groups_of_one(const Config& config, const RunPlan& plan, Findings& found) {
  const AlgorithmConfig& a = config.algorithm;
  const LoneSample lone = advantage_traits(a.advantage).lone;
  if (config.rollout.samples_per_prompt != 1 || taught_alone(config, plan)) return;
  if (lone == LoneSample::nothing)
    found.error("rollout.samples_per_prompt",
                fmt::format("algorithm.advantage = \"{}\" compares samples of a prompt, and there is one",
                            a.advantage),
                {2});
  if (lone == LoneSample::by_rule && a.single_group == "drop")
    found.error(
        "algorithm.single_group",
        "with rollout.samples_per_prompt = 1 every group has one sample, and \"drop\" leaves all of them "
        "out; better: 2 or more samples per prompt",
        {"verl", "zero"});
}

/// A teacher reads what the policy has written.
void check_teacher(const Config& config, const RunPlan& plan, const RunModels& models, Findings& found) {
  const int64_t context = config.model.context_tokens.value_or(models.policy.max_position_embeddings);
  for (const RolePlan& role : plan.roles) {
    const int64_t own = models.of(role).max_position_embeddings;
    if (!role.traits->keys.has(RoleKey::path) || own >= context) continue;
    found.error("model.context_tokens",
                fmt::format("sequences of {} tokens, and the model at roles.{}.path was made for {}", context,
                            role.name(), own),
                {own});
  }
}

}  // namespace

bool plan_advantages(const Config& config, const RunPlan& plan, const RunModels& models, Findings& found) {
  if (!plan.generates) {
    if (config.algorithm.aggregation == "seq-mean-token-sum-norm")
      found.error("algorithm.aggregation",
                  "\"seq-mean-token-sum-norm\" divides by rollout.max_new_tokens; sft has no rollout",
                  {"token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "token-sum"});
    return false;
  }
  const AlgorithmConfig& a = config.algorithm;
  const bool returns = (a.kl_in == "reward" && a.kl_coef != 0) || a.gamma != 1;
  check_parts(config, found);
  check_groups_of_one(config, plan, found);
  check_teacher(config, plan, models, found);
  return plan.taught() || (advantage_traits(a.advantage).by_token && returns);
}

void check_dynamic_sampling(const Config& config, const RunPlan& plan, Findings& found) {
  const RolloutConfig& r = config.rollout;
  if (r.dynamic_sampling_rounds == 0 || !plan.generates) return;
  const char* why = taught_alone(config, plan)  ? "a teacher alone"
                    : r.samples_per_prompt == 1 ? "rollout.samples_per_prompt = 1"
                    : r.temperature == 0        ? "rollout.temperature = 0"
                                                : nullptr;
  if (why)
    found.error(
        "rollout.dynamic_sampling_rounds",
        fmt::format(
            "with {} all samples of a prompt earn the same reward, and every prompt would be replaced", why),
        {0});
}

}  // namespace temper
