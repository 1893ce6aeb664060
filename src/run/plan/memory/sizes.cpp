#include <algorithm>

#include "src/config/sets/validation_sets.h"
#include "src/core/check.h"
#include "src/core/text/short_number.h"
#include "src/nn/rope_table.h"
#include "src/run/plan/draft.h"
#include "src/run/plan/memory/cache_bytes.h"
#include "src/run/plan/memory/memory.h"

namespace temper {
namespace {

constexpr int64_t kLeastBudget = 4096;             // tokens of an automatic micro-batch
constexpr int64_t kCacheBytes = int64_t{2} << 30;  // most that an automatic cache takes per rank
constexpr int64_t kMaxPages = 2147483647;          // page numbers are 32-bit
constexpr int64_t kPageStep = 16;

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Sampled: prompt and response have limits of their own. Supervised: the context is the only limit unless
/// given.
void sampled_lengths(PlanDraft& d) {
  const RolloutConfig& r = d.config.rollout;
  RunPlan& plan = d.result.plan;
  if (r.max_new_tokens >= plan.context_tokens)
    return d.error("rollout.max_new_tokens",
                   fmt::format("{} new tokens leave no room for a prompt in a context of {} tokens",
                               r.max_new_tokens, plan.context_tokens),
                   {plan.context_tokens - 1, std::max<int64_t>(1, plan.context_tokens / 2)});
  if (r.min_new_tokens > r.max_new_tokens)
    d.error("rollout.min_new_tokens",
            fmt::format("no response is longer than rollout.max_new_tokens = {}: it is {}", r.max_new_tokens,
                        r.min_new_tokens),
            {0, r.max_new_tokens});
  plan.max_new_tokens = r.max_new_tokens;
  if (r.tokens_per_step > 0) plan.steps_of_longest_response = (r.max_new_tokens - 1) / r.tokens_per_step + 1;
  plan.max_prompt_tokens = r.max_prompt_tokens.value_or(plan.context_tokens - r.max_new_tokens);
  plan.longest_sequence = plan.max_prompt_tokens + plan.max_new_tokens;
  if (plan.longest_sequence > plan.context_tokens)
    d.error("rollout.max_prompt_tokens",
            fmt::format("{} prompt + {} new tokens are more than the context of {}", plan.max_prompt_tokens,
                        plan.max_new_tokens, plan.context_tokens),
            {"auto", plan.context_tokens - plan.max_new_tokens});
}

void supervised_lengths(PlanDraft& d) {
  const RolloutConfig& r = d.config.rollout;
  RunPlan& plan = d.result.plan;
  const int64_t longest_part = plan.context_tokens - 1;
  plan.max_prompt_tokens = std::min(r.max_prompt_tokens.value_or(longest_part), longest_part);
  plan.max_new_tokens = r.max_new_tokens > 0 ? std::min(r.max_new_tokens, longest_part) : longest_part;
  plan.longest_sequence = std::min(plan.context_tokens, plan.max_prompt_tokens + plan.max_new_tokens);
}

/// Tokens that the cache must hold for one sequence.
int64_t longest_cached(const RunPlan& plan) {
  return std::max(plan.generates ? plan.longest_sequence : 0, plan.validation_longest);
}

/// Sequences that a team of ranks can have at once.
int64_t running_sequences(const PlanDraft& d) {
  const RunPlan& plan = d.result.plan;
  const ValidationConfig& v = d.config.validation;
  const int64_t most = d.config.rollout.max_running_sequences;
  const auto share = [&](const RolePlan& role, int64_t prompts, int64_t samples) {
    const auto teams = std::max<int64_t>(1, role.teams());
    return saturating_multiply(ceil_divide(prompts, teams), samples);
  };
  int64_t sequences = 1;
  if (plan.generates)
    sequences = share(*plan.generator(), plan.batch.prompts_per_step, plan.batch.samples_per_prompt);
  if (plan.validates)
    for (const ValidationSet& set : v.data)
      sequences = std::max(sequences, v.max_prompts > 0
                                          ? share(plan.trainer(), v.max_prompts, samples_of(set, d.config))
                                          : most);
  return std::clamp<int64_t>(sequences, 1, most);
}

}  // namespace

void plan_lengths(PlanDraft& d) {
  const int64_t most = d.facts.max_position_embeddings;
  const std::optional<int64_t> given = d.config.model.context_tokens;
  RunPlan& plan = d.result.plan;
  plan.context_tokens = std::min(given.value_or(most), most);
  if (given && *given > most)
    d.error("model.context_tokens",
            fmt::format("the model was made for {} tokens (max_position_embeddings), not {}{}", most, *given,
                        why_no_longer_context(d.facts.rope)),
            {"auto", most});
  if (plan.context_tokens < 2)
    return d.error(
        "model.path",
        fmt::format("a context of {} holds no prompt and response", count_text(plan.context_tokens, "token")),
        {});
  for (const int64_t id : d.config.rollout.stop_token_ids)
    if (id >= d.facts.vocab_size)
      return d.error("rollout.stop_token_ids",
                     fmt::format("id {} is beyond the vocabulary of {}", id, d.facts.vocab_size),
                     {Json::array()});
  // Nothing is proposed: an override of a table adds ids to it and takes none away.
  const auto& bias = d.config.rollout.logit_bias;
  if (!bias.empty() && bias.rbegin()->first >= d.facts.vocab_size)
    return d.error(
        "rollout.logit_bias",
        fmt::format("id {} is beyond the vocabulary of {}", bias.rbegin()->first, d.facts.vocab_size), {});
  d.supervised() ? supervised_lengths(d) : sampled_lengths(d);
}

void plan_microbatch(PlanDraft& d) {
  RunPlan& plan = d.result.plan;
  const int64_t longest = plan.longest_sequence;
  const int64_t cp = plan.trainer().cp(), least = plan.least_budget();
  plan.max_tokens_per_microbatch =
      d.config.train.max_tokens_per_microbatch.value_or(std::max(least, kLeastBudget));
  plan.least_tokens_of_stages = d.config.train.max_tokens_per_microbatch ? 0 : kLeastBudget;
  if (plan.max_tokens_per_microbatch >= least) return;
  const std::string shared = cp > 1 ? fmt::format(" on each of {} ranks that share it", cp) : "";
  d.error("train.max_tokens_per_microbatch",
          fmt::format(
              "a sequence can have {} tokens (prompt {}, new {}) and is never cut; the budget is {}{}. Lower "
              "rollout.max_prompt_tokens where prompts are shorter",
              longest, plan.max_prompt_tokens, plan.max_new_tokens, plan.max_tokens_per_microbatch, shared),
          {"auto", least});
}

void plan_cache(PlanDraft& d) {
  const RolloutConfig& r = d.config.rollout;
  RunPlan& plan = d.result.plan;
  if (r.kv_page_tokens % kPageStep != 0) {
    const int64_t below = std::max(kPageStep, r.kv_page_tokens / kPageStep * kPageStep);
    return d.error("rollout.kv_page_tokens",
                   fmt::format("{} is no multiple of {}", r.kv_page_tokens, kPageStep),
                   {below, below + kPageStep});
  }
  const int64_t longest = longest_cached(plan);
  if (longest == 0) return;
  plan.kv_page_tokens = r.kv_page_tokens;
  const RolePlan& role = plan.generates ? *plan.generator() : plan.trainer();
  plan.kv_page_bytes = 1;  // no layer may have pages
  for (const CacheBytes& stage : cache_bytes(d.facts, role, plan.dtype, r.kv_page_tokens)) {
    plan.kv_page_bytes = std::max(plan.kv_page_bytes, stage.page);
    plan.state_bytes = std::max(plan.state_bytes, stage.state);
  }
  const int64_t needed = ceil_divide(longest, r.kv_page_tokens);
  plan.running_sequences = running_sequences(d);
  if (!r.kv_memory_bytes && plan.device == Device::cuda) {
    plan.kv_pages = needed;  // more where the memory of the GPU is known: plan_gpu_sizes
    return;
  }
  if (!r.kv_memory_bytes) {
    const int64_t useful = saturating_multiply(plan.running_sequences, needed);
    plan.kv_pages = std::max(needed, std::min({useful, kCacheBytes / plan.kv_page_bytes, kMaxPages}));
    return;
  }
  plan.kv_pages = std::min(*r.kv_memory_bytes / plan.kv_page_bytes, kMaxPages);
  if (plan.kv_pages < needed)
    d.error("rollout.kv_memory",
            fmt::format(
                "{} bytes hold {} tokens; one sequence can have {} and needs {} bytes ({} pages of {} bytes)",
                *r.kv_memory_bytes, plan.kv_pages * r.kv_page_tokens, longest,
                saturating_multiply(needed, plan.kv_page_bytes), needed, plan.kv_page_bytes),
            {"auto", saturating_multiply(needed, plan.kv_page_bytes)});
}

}  // namespace temper
