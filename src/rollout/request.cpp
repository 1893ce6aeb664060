#include "src/rollout/request.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/rng.h"
#include "src/nn/rope_table.h"
#include "src/rollout/media_tokens.h"

namespace temper {
namespace {

void require_ids(const std::vector<int32_t>& tokens, int64_t data_position, int64_t vocab_size) {
  for (const int32_t id : tokens)
    if (id < 0 || id >= vocab_size)
      fail(Exit::data, {.what = "a prompt holds something that is no token id",
                        .where = fmt::format("prompt {}", data_position),
                        .why = fmt::format("{}; ids are 0 to {}", id, vocab_size - 1),
                        .fix = "take the token out, or use the tokenizer of this model"});
}

}  // namespace

void check_request(const Request& r, int64_t capacity, const ModelConfig& model) {
  CHECK(r.data_position >= 0 && r.data_position < SampleKey::kMaxPosition && r.first_sample >= 0 &&
            int64_t{r.first_sample} + r.num_samples <= SampleKey::kMaxSample,
        "no random numbers for {} samples from {} of the prompt at {}", r.num_samples, r.first_sample,
        r.data_position);
  const auto length = static_cast<int64_t>(r.prompt.size());
  int64_t longest = length;
  for (const Response& begun : r.begun)
    if (begun.finish == FinishReason::unfinished)
      longest = std::max(longest, length + static_cast<int64_t>(begun.tokens.size()));
  const int64_t most = r.num_samples > 0 ? capacity - 1 : capacity;  // a token may follow
  if (length == 0 || longest > most)
    fail(Exit::data, {.what = length == 0 ? "a prompt has no tokens" : "a prompt is too long",
                      .where = fmt::format("prompt {}", r.data_position),
                      .why = fmt::format(
                          "{} tokens{}; 1 to {} fit into context and cache{}", longest,
                          longest > length ? " with the begun response" : "", most,
                          longest >= model.max_position_embeddings ? why_no_longer_context(model.rope) : ""),
                      .fix = "take the prompt out, or raise model.context_tokens or rollout.kv_memory"});
  require_ids(r.prompt, r.data_position, model.vocab_size);
  require_text(r.prompt, model.media_token_ids, "a prompt", fmt::format("prompt {}", r.data_position));
  for (const Response& begun : r.begun) require_ids(begun.tokens, r.data_position, model.vocab_size);
  CHECK(r.begun.empty() || r.begun.size() == static_cast<size_t>(r.num_samples), "{} of {} samples begun",
        r.begun.size(), r.num_samples);
}

namespace {

/// The last run is of the call that a stop cut.
bool has_run(bool after_stop, const Response& response, int64_t version) {
  return after_stop && !response.versions.empty() && response.versions.back().first == version;
}

}  // namespace

void leave_run(bool after_stop, Response& response, int64_t version) {
  if (!response.versions.empty() && !has_run(after_stop, response, version))
    response.versions.emplace_back(version, 0);
}

int64_t tokens_before_stop(bool after_stop, const Response& response, int64_t version) {
  return has_run(after_stop, response, version) ? response.versions.back().second : 0;
}

std::vector<int32_t> open_samples(const Request& request, const GenerateOptions& options) {
  std::vector<int32_t> open;
  for (int32_t sample = 0; sample < request.num_samples; ++sample) {
    if (!request.begun.empty()) {
      const Response& begun = request.begun[static_cast<size_t>(sample)];
      const int64_t budget = (request.own ? *request.own : options).tokens_per_call;
      if (begun.finish != FinishReason::unfinished ||
          (budget > 0 && tokens_before_stop(request.after_stop, begun, options.version) >= budget))
        continue;
    }
    open.push_back(sample);
  }
  return open;
}

void add(RolloutCounters& all, const RolloutCounters& some, int64_t times) {
  all.rows_prefilled += times * some.rows_prefilled;
  all.rows_shared += times * some.rows_shared;
  all.rows_generated += times * some.rows_generated;
  all.rows_recomputed += times * some.rows_recomputed;
  all.preemptions += times * some.preemptions;
}

}  // namespace temper
