#include <algorithm>

#include "src/config/methods.h"
#include "src/config/sets/validation_sets.h"
#include "src/core/check.h"
#include "src/core/text/short_number.h"
#include "src/nn/rope_table.h"
#include "src/run/plan/memory/cache_bytes.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/rules.h"

namespace temper {
namespace {

constexpr int64_t kCacheBytes = int64_t{2} << 30;  // most that an automatic cache takes per rank
constexpr int64_t kMaxPages = 2147483647;          // page numbers are 32-bit
constexpr int64_t kPageStep = 16;

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Sampled: prompt and response have limits of their own. Supervised: the context is the only limit unless
/// given.
SequenceLengths sampled_lengths(const RolloutConfig& r, int64_t context, Findings& found) {
  SequenceLengths lengths{.context = context};
  if (r.max_new_tokens >= context) {
    found.error("rollout.max_new_tokens",
                fmt::format("{} new tokens leave no room for a prompt in a context of {} tokens",
                            r.max_new_tokens, context),
                {context - 1, std::max<int64_t>(1, context / 2)});
    return lengths;
  }
  if (r.min_new_tokens > r.max_new_tokens)
    found.error("rollout.min_new_tokens",
                fmt::format("no response is longer than rollout.max_new_tokens = {}: it is {}",
                            r.max_new_tokens, r.min_new_tokens),
                {0, r.max_new_tokens});
  lengths.max_new = r.max_new_tokens;
  if (r.tokens_per_step > 0)
    lengths.steps_of_longest_response = (r.max_new_tokens - 1) / r.tokens_per_step + 1;
  lengths.max_prompt = r.max_prompt_tokens.value_or(context - r.max_new_tokens);
  lengths.longest = lengths.max_prompt + lengths.max_new;
  if (lengths.longest > context)
    found.error("rollout.max_prompt_tokens",
                fmt::format("{} prompt + {} new tokens are more than the context of {}", lengths.max_prompt,
                            lengths.max_new, context),
                {"auto", context - lengths.max_new});
  return lengths;
}

SequenceLengths supervised_lengths(const RolloutConfig& r, int64_t context) {
  const int64_t most = context - 1;
  const int64_t prompt = std::min(r.max_prompt_tokens.value_or(most), most);
  const int64_t response = r.max_new_tokens > 0 ? std::min(r.max_new_tokens, most) : most;
  return {.context = context,
          .max_prompt = prompt,
          .max_new = response,
          .longest = std::min(context, prompt + response)};
}

/// An id that the vocabulary lacks is an error.
bool knows_ids(const RolloutConfig& r, int64_t vocabulary, Findings& found) {
  const auto refuse = [&](const char* key, int64_t id, std::vector<Json> legal) {
    found.error(key, fmt::format("id {} is beyond the vocabulary of {}", id, vocabulary), std::move(legal));
    return false;
  };
  for (const int64_t id : r.stop_token_ids)
    if (id >= vocabulary) return refuse("rollout.stop_token_ids", id, {Json::array()});
  // Nothing is proposed: an override of a table adds ids to it and takes none away.
  const auto& bias = r.logit_bias;
  if (!bias.empty() && bias.rbegin()->first >= vocabulary)
    return refuse("rollout.logit_bias", bias.rbegin()->first, {});
  return true;
}

/// Tokens that the cache must hold for one sequence.
int64_t longest_cached(const RunPlan& plan) {
  return std::max(plan.generates ? plan.lengths.longest : 0, plan.validation.longest);
}

/// Sequences that a team of ranks can have at once.
int64_t running_sequences(const Config& config, const RunPlan& plan) {
  const ValidationConfig& v = config.validation;
  const int64_t most = config.rollout.max_running_sequences;
  const auto share = [&](const RolePlan& role, int64_t prompts, int64_t samples) {
    const auto teams = std::max<int64_t>(1, role.teams());
    return saturating_multiply(ceil_divide(prompts, teams), samples);
  };
  int64_t sequences = 1;
  if (plan.generates)
    sequences = share(*plan.generator(), plan.batch.prompts_per_step, plan.batch.samples_per_prompt);
  if (plan.validation.generates)
    for (const ValidationSet& set : v.data)
      sequences =
          std::max(sequences,
                   v.max_prompts > 0 ? share(plan.trainer(), v.max_prompts, samples_of(set, config)) : most);
  return std::clamp<int64_t>(sequences, 1, most);
}

}  // namespace

SequenceLengths plan_lengths(const Config& config, const ModelConfig& model, Findings& found) {
  const int64_t most = model.max_position_embeddings;
  const std::optional<int64_t> given = config.model.context_tokens;
  const int64_t context = std::min(given.value_or(most), most);
  if (given && *given > most)
    found.error("model.context_tokens",
                fmt::format("the model was made for {} tokens (max_position_embeddings), not {}{}", most,
                            *given, why_no_longer_context(model.rope)),
                {"auto", most});
  if (context < 2)
    found.error("model.path",
                fmt::format("a context of {} holds no prompt and response", count_text(context, "token")),
                {});
  if (context < 2 || !knows_ids(config.rollout, model.vocab_size, found)) return {.context = context};
  return algorithm_traits(config.algorithm.name).generates ? sampled_lengths(config.rollout, context, found)
                                                           : supervised_lengths(config.rollout, context);
}

int64_t plan_microbatch(const Config& config, const RunPlan& plan, Findings& found) {
  const int64_t cp = plan.trainer().cp(), least = plan.least_budget();
  const int64_t most = config.train.max_tokens_per_microbatch.value_or(std::max(least, kLeastBudget));
  if (most >= least) return most;
  const std::string shared = cp > 1 ? fmt::format(" on each of {} ranks that share it", cp) : "";
  found.error(
      "train.max_tokens_per_microbatch",
      fmt::format(
          "a sequence can have {} tokens (prompt {}, new {}) and is never cut; the budget is {}{}. Lower "
          "rollout.max_prompt_tokens where prompts are shorter",
          plan.lengths.longest, plan.lengths.max_prompt, plan.lengths.max_new, most, shared),
      {"auto", least});
  return most;
}

CachePlan plan_cache(const Config& config, const RunPlan& plan, const ModelConfig& model, Findings& found) {
  const RolloutConfig& r = config.rollout;
  CachePlan cache;
  if (r.kv_page_tokens % kPageStep != 0) {
    const int64_t below = std::max(kPageStep, r.kv_page_tokens / kPageStep * kPageStep);
    found.error("rollout.kv_page_tokens", fmt::format("{} is no multiple of {}", r.kv_page_tokens, kPageStep),
                {below, below + kPageStep});
    return cache;
  }
  const int64_t longest = longest_cached(plan);
  if (longest == 0) return cache;
  cache.page_tokens = r.kv_page_tokens;
  const RolePlan& role = plan.generates ? *plan.generator() : plan.trainer();
  cache.page_bytes = 1;  // no layer may have pages
  for (const CacheBytes& stage : cache_bytes(model, role, plan.dtype, r.kv_page_tokens)) {
    cache.page_bytes = std::max(cache.page_bytes, stage.page);
    cache.state_bytes = std::max(cache.state_bytes, stage.state);
  }
  const int64_t needed = ceil_divide(longest, r.kv_page_tokens);
  cache.running_sequences = running_sequences(config, plan);
  if (!r.kv_memory_bytes && plan.device == Device::cuda) {
    cache.pages = needed;  // more where the memory of the GPU is known: sized_for_gpu
    return cache;
  }
  if (!r.kv_memory_bytes) {
    const int64_t useful = saturating_multiply(cache.running_sequences, needed);
    cache.pages = std::max(needed, std::min({useful, kCacheBytes / cache.page_bytes, kMaxPages}));
    return cache;
  }
  cache.pages = std::min(*r.kv_memory_bytes / cache.page_bytes, kMaxPages);
  if (cache.pages < needed)
    found.error(
        "rollout.kv_memory",
        fmt::format(
            "{} bytes hold {} tokens; one sequence can have {} and needs {} bytes ({} pages of {} bytes)",
            *r.kv_memory_bytes, cache.pages * r.kv_page_tokens, longest,
            saturating_multiply(needed, cache.page_bytes), needed, cache.page_bytes),
        {"auto", saturating_multiply(needed, cache.page_bytes)});
  return cache;
}

}  // namespace temper
