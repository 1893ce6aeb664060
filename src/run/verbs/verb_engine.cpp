#include "src/run/verbs/verb_engine.h"

#include <algorithm>

#include "src/core/log.h"
#include "src/run/plan/run_options.h"

namespace temper {
namespace {

constexpr int64_t kCacheBytes = int64_t{2} << 30;

/// Room for pages where rollout.kv_memory is not given, and for states: half of what the weights left free on
/// a GPU.
int64_t cache_bytes(const Model& model) {
  return model.device() == Device::cpu ? kCacheBytes : device::gpu_memory().free / 2;
}

/// Sequences at once: their states have half of the room.
int64_t num_states(const Model& model, const RolloutConfig& r) {
  const int64_t bytes = StateShape(model).sequence_bytes();
  if (bytes == 0) return 0;
  return std::clamp<int64_t>(cache_bytes(model) / 2 / bytes, 1, r.max_running_sequences);
}

/// Pages that there is room for, where they are not given, beside the states.
int64_t num_pages(const Model& model, const RolloutConfig& r) {
  const int64_t page = std::max<int64_t>(1, KvShape(model).page_bytes(r.kv_page_tokens));
  const int64_t beside = num_states(model, r) > 0 ? cache_bytes(model) / 2 : cache_bytes(model);
  return r.kv_memory_bytes.value_or(beside) / page;
}

}  // namespace

int64_t longest_dialogue(const Model& model, const RolloutConfig& r) {
  return std::min(model.context_tokens(), std::max<int64_t>(2, (num_pages(model, r) - 1) * r.kv_page_tokens));
}

EngineOptions engine_of_verb(const Model& model, const RolloutConfig& r, int64_t longest_sequence) {
  EngineOptions o{.scheduler = {r.max_running_sequences, r.prefill_chunk_tokens},
                  .page_tokens = r.kv_page_tokens,
                  .num_states = num_states(model, r)};
  const int64_t one = (longest_sequence + r.kv_page_tokens - 1) / r.kv_page_tokens + 1;
  o.num_pages = std::max(one, std::min(one * r.max_running_sequences, num_pages(model, r)));
  return o;
}

void require_ids_of_model(const RolloutConfig& r, int64_t vocab_size) {
  std::vector<std::pair<const char*, int64_t>> ids;
  for (const int64_t id : r.stop_token_ids) ids.emplace_back("rollout.stop_token_ids", id);
  for (const auto& [id, bias] : r.logit_bias) ids.emplace_back("rollout.logit_bias", id);
  for (const auto& [key, id] : ids)
    if (id >= vocab_size)
      fail(Exit::usage, {.what = "a token id is beyond the model's vocabulary",
                         .where = fmt::format("{}, command line", key),
                         .why = fmt::format("{}; ids are 0 to {}", id, vocab_size - 1),
                         .fix = "`temper tokenize` shows the ids of a text"});
}

void warn_of_lost_ends(const Model& model, const Tokenizer* tokenizer) {
  const std::string lost =
      lost_end_tokens_text(model.config(), tokenizer ? tokenizer->eos_id() : std::nullopt);
  if (!lost.empty()) log::warn("{}", lost);
}

}  // namespace temper
