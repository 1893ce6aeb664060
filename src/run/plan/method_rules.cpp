// What [algorithm] and the parts that it chooses ask of each other and of the rollout.

#include <algorithm>

#include "src/config/load.h"
#include "src/config/values.h"
#include "src/core/check.h"
#include "src/run/plan/draft.h"

namespace temper {
namespace {

/// A key that only some parts read.
struct KeyOfPart {
  const char* key;
  bool read;
  std::string by;  // that does not read it
};

/// A value that nothing reads is a mistake, unless it is the default that the name has.
void refuse_unread(PlanDraft& d, const std::vector<KeyOfPart>& keys) {
  Config written = d.config, defaults = config_defaults(d.config.algorithm.name);
  const std::vector<Field> fields = config_fields(written), unset = config_fields(defaults);
  for (const KeyOfPart& of : keys) {
    if (of.read) continue;
    const auto found = [&](const std::vector<Field>& all) {
      return field_json(
          *std::find_if(all.begin(), all.end(), [&](const Field& f) { return f.key == of.key; }));
    };
    const Json value = found(fields), standard = found(unset);
    if (value != standard)
      d.error(of.key, fmt::format("{} does not read it, and it is {}", of.by, toml_text(value)), {standard});
  }
}

void check_parts(PlanDraft& d) {
  const AlgorithmConfig& a = d.config.algorithm;
  const LossTraits& loss = loss_traits(a.loss);
  const AdvantageTraits& advantage = advantage_traits(a.advantage);
  const std::string by_loss = fmt::format("algorithm.loss = \"{}\"", a.loss),
                    by_advantage = fmt::format("algorithm.advantage = \"{}\"", a.advantage),
                    by_weights = "algorithm.tis_cap = 0, without importance weights,";
  refuse_unread(d, {{"algorithm.clip_low", loss.clips, by_loss},
                    {"algorithm.clip_high", loss.clips, by_loss},
                    {"algorithm.dual_clip", loss.dual_clips, by_loss},
                    {"algorithm.advantage_std", advantage.scales, by_advantage},
                    {"algorithm.gamma", advantage.discounts, by_advantage},
                    {"algorithm.importance", a.tis_cap > 0, by_weights},
                    {"algorithm.importance_form", a.tis_cap > 0, by_weights},
                    {"algorithm.importance_bounds", a.tis_cap > 0, by_weights},
                    {"algorithm.reject_mean_k3", a.tis_cap > 0, by_weights},
                    {"algorithm.reject_token_below", a.tis_cap > 0, by_weights}});
  if (a.dual_clip > 0 && a.dual_clip <= 1)
    d.error("algorithm.dual_clip",
            fmt::format("it is {}, and a ratio of 1 is on policy: more than 1, or 0", a.dual_clip),
            {0.0, 3.0});
  const std::vector<double>& bounds = a.importance_bounds;
  if (!bounds.empty() && (bounds.size() != 2 || bounds[0] >= bounds[1]))
    d.error("algorithm.importance_bounds",
            fmt::format("[{}] is no lowest weight and a higher one", fmt::join(bounds, ", ")),
            {Json::array(), Json::array({0.5, 2.0})});
  if (advantage.by_part && a.kl_in == "reward" && a.kl_coef > 0)
    d.error("algorithm.kl_in",
            fmt::format("{} takes the parts of the reward, and the KL is none", by_advantage), {"loss"});
}

void check_groups_of_one(PlanDraft& d) {
  const AlgorithmConfig& a = d.config.algorithm;
  const LoneSample lone = advantage_traits(a.advantage).lone;
  if (d.config.rollout.samples_per_prompt != 1 || d.taught_alone()) return;
  if (lone == LoneSample::nothing)
    d.error("rollout.samples_per_prompt",
            fmt::format("algorithm.advantage = \"{}\" compares samples of a prompt, and there is one",
                        a.advantage),
            {2});
  if (lone == LoneSample::by_rule && a.single_group == "drop")
    d.error("algorithm.single_group",
            "with rollout.samples_per_prompt = 1 every group has one sample, and \"drop\" leaves all of them "
            "out; better: 2 or more samples per prompt",
            {"verl", "zero"});
}

/// A teacher reads what the policy has written.
void check_teacher(PlanDraft& d) {
  const int64_t context = d.config.model.context_tokens.value_or(d.facts.max_position_embeddings);
  for (const RolePlan& role : d.result.plan.roles) {
    const int64_t own = d.models.of(role).max_position_embeddings;
    if (!role.traits->keys.has(RoleKey::path) || own >= context) continue;
    d.error("model.context_tokens",
            fmt::format("sequences of {} tokens, and the model at roles.{}.path was made for {}", context,
                        role.name(), own),
            {own});
  }
}

}  // namespace

void plan_algorithm(PlanDraft& d) {
  if (d.supervised()) {
    if (d.config.algorithm.aggregation == "seq-mean-token-sum-norm")
      d.error("algorithm.aggregation",
              "\"seq-mean-token-sum-norm\" divides by rollout.max_new_tokens; sft has no rollout",
              {"token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "token-sum"});
    return;
  }
  const AlgorithmConfig& a = d.config.algorithm;
  const bool returns = (a.kl_in == "reward" && a.kl_coef != 0) || a.gamma != 1;
  d.result.plan.advantages_by_token = d.taught() || (advantage_traits(a.advantage).by_token && returns);
  check_parts(d);
  check_groups_of_one(d);
  check_teacher(d);
}

void plan_dynamic_sampling(PlanDraft& d) {
  const RolloutConfig& r = d.config.rollout;
  if (r.dynamic_sampling_rounds == 0 || d.supervised()) return;
  const char* why = d.taught_alone()            ? "a teacher alone"
                    : r.samples_per_prompt == 1 ? "rollout.samples_per_prompt = 1"
                    : r.temperature == 0        ? "rollout.temperature = 0"
                                                : nullptr;
  if (why)
    d.error(
        "rollout.dynamic_sampling_rounds",
        fmt::format(
            "with {} all samples of a prompt earn the same reward, and every prompt would be replaced", why),
        {0});
}

}  // namespace temper
