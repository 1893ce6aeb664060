#include "src/run/plan/run_options.h"

#include <algorithm>

#include "src/rl/registry.h"

namespace temper {

SampleOptions sample_options(const RolloutConfig& r) {
  return {.temperature = r.temperature,
          .top_k = static_cast<int32_t>(r.top_k),
          .top_p = r.top_p,
          .min_p = r.min_p,
          .repetition_penalty = r.repetition_penalty,
          .frequency_penalty = r.frequency_penalty,
          .presence_penalty = r.presence_penalty};
}

GenerateOptions sampling_options(const RolloutConfig& section, const ModelConfig& model,
                                 const Tokenizer* tokenizer, uint64_t seed, int64_t max_new_tokens) {
  const RolloutConfig& r = section;
  GenerateOptions o{.sampling = sample_options(r),
                    .seed = seed,
                    .max_new_tokens = max_new_tokens,
                    .min_new_tokens = r.min_new_tokens,
                    .stop_token_ids = {r.stop_token_ids.begin(), r.stop_token_ids.end()},
                    .stop = r.stop,
                    .include_stop_text = r.include_stop_text,
                    .logit_bias = {r.logit_bias.begin(), r.logit_bias.end()},
                    .num_sampleable = model.vocab_size};
  if (tokenizer) o.num_sampleable = std::min<int64_t>(o.num_sampleable, tokenizer->vocab_size());
  if (r.ignore_eos) return o;
  o.stop_token_ids.insert(o.stop_token_ids.end(), model.eos_token_ids.begin(), model.eos_token_ids.end());
  if (const auto id = tokenizer ? tokenizer->eos_id() : std::nullopt) o.stop_token_ids.push_back(*id);
  return o;
}

GenerateOptions rollout_options(const Config& config, const RunPlan& plan, const ModelConfig& model,
                                const Tokenizer& tokenizer) {
  return sampling_options(config.rollout, model, &tokenizer, config.run.seed, plan.lengths.max_new);
}

EngineOptions engine_options(const Config& config, const RunPlan& plan) {
  return {.scheduler = {config.rollout.max_running_sequences, config.rollout.prefill_chunk_tokens},
          .page_tokens = plan.cache.page_tokens,
          .num_pages = plan.cache.pages,
          .find_pages = !config.rollout.harness.empty(),
          .num_states = plan.cache.running_sequences,
          .routes = plan.routes};
}

PassOptions pass_options(const Config& config, const RunPlan& plan, const RolePlan& role) {
  return {.temperature = config.rollout.temperature,
          .token_budget = plan.budget_of(role),
          .least_of_stages = plan.least_of_stages(role),
          .cost = {config.train.cost_linear, config.train.cost_quadratic},
          .routes = {role.traits->leads() ? plan.routes : RouteShape{}, plan.follows_routes}};
}

RecomputePlan recompute_plan(const RecomputeConfig& c) {
  return {.granularity = c.granularity == "full"        ? Recompute::full
                         : c.granularity == "selective" ? Recompute::selective
                                                        : Recompute::none,
          .block = c.method == "block",
          .num_layers = c.num_layers};
}

TrainerOptions trainer_options(const Config& config, const RunPlan& plan, const RolePlan& role) {
  return {.pass = pass_options(config, plan, role),
          .optimizer = config.optimizer,
          .total_updates = plan.batch.updates_total,
          .seed = config.run.seed,
          .recompute = recompute_plan(config.train.recompute),
          .optimizer_state = plan.optimizer_in_host ? StatePlace::host : StatePlace::device,
          .aux = AuxLossOptions::of(config.moe)};
}

std::string lost_end_tokens_text(const ModelConfig& model, std::optional<int32_t> tokenizer_eos) {
  std::string lost;
  for (const int64_t id : model.lost_eos_token_ids)
    lost += fmt::format("{}eos_token_id {}", lost.empty() ? "" : ", ", id);
  if (tokenizer_eos && *tokenizer_eos >= model.vocab_size)
    lost += fmt::format("{}eos_token {} of the tokenizer", lost.empty() ? "" : ", ", *tokenizer_eos);
  if (lost.empty()) return "";
  return fmt::format("{}: outside of the vocabulary, whose ids are 0 to {}, so no response ends with it",
                     lost, model.vocab_size - 1);
}

std::string changed_sampling_text(const RolloutConfig& r) {
  std::string keys;
  const auto add = [&](const char* key, bool on) {
    if (on) keys += (keys.empty() ? "rollout." : ", rollout.") + std::string(key);
  };
  const bool greedy = r.temperature == 0;
  add("top_k", r.top_k > 0 && !greedy);
  add("top_p", r.top_p < 1 && !greedy);
  add("min_p", r.min_p > 0 && !greedy);
  add("repetition_penalty", r.repetition_penalty != 1);
  add("presence_penalty", r.presence_penalty != 0);
  add("frequency_penalty", r.frequency_penalty != 0);
  add("logit_bias", !r.logit_bias.empty());
  add("min_new_tokens", r.min_new_tokens > 0);
  if (keys.empty()) return "";
  return keys +
         ": tokens are not drawn from the policy alone; log-probs and the ratio are those of the policy and "
         "ignore it";
}

bool starts_programs(const Config& config) {
  return rewards_need_helpers(config) || !config.rollout.harness.empty() || !config.log.command.empty();
}

bool rewards_need_helpers(const Config& config) {
  const std::vector<ValidationSet>& sets = config.validation.data;
  return needs_helpers(config.reward) || std::any_of(sets.begin(), sets.end(), [](const ValidationSet& set) {
           return needs_helpers(RewardConfig{set.rewards});
         });
}

}  // namespace temper
