#include "src/config/sets/validation_sets.h"

#include <filesystem>

namespace temper {
namespace {

void apply(const SamplingOverrides& over, RolloutConfig& r) {
  const auto set = [](auto& to, const auto& from) {
    if (from) to = *from;
  };
  set(r.temperature, over.temperature);
  set(r.top_k, over.top_k);
  set(r.top_p, over.top_p);
  set(r.min_p, over.min_p);
  set(r.repetition_penalty, over.repetition_penalty);
  set(r.presence_penalty, over.presence_penalty);
  set(r.frequency_penalty, over.frequency_penalty);
  if (over.max_prompt_tokens) r.max_prompt_tokens = over.max_prompt_tokens;
  set(r.max_new_tokens, over.max_new_tokens);
  set(r.min_new_tokens, over.min_new_tokens);
  set(r.logit_bias, over.logit_bias);
  set(r.stop, over.stop);
  set(r.include_stop_text, over.include_stop_text);
  set(r.stop_token_ids, over.stop_token_ids);
  set(r.ignore_eos, over.ignore_eos);
}

}  // namespace

std::string name_of(const ValidationSet& set) {
  return set.name.empty() ? std::filesystem::path(set.path).stem().string() : set.name;
}

int64_t samples_of(const ValidationSet& set, const Config& config) {
  return set.samples_per_prompt.value_or(config.validation.samples_per_prompt);
}

RewardConfig rewards_of(const ValidationSet& set, const Config& config) {
  return set.rewards.empty() ? config.reward : RewardConfig{set.rewards};
}

RolloutConfig rollout_of(const ValidationSet& set, const Config& config) {
  RolloutConfig rollout = config.rollout;
  apply(config.validation.rollout, rollout);
  apply(set.rollout, rollout);
  return rollout;
}

}  // namespace temper
