#pragma once
// Generation: continuous batching over a paged cache, through the same model and head as training. A sample
// is a pure function of weights, prompt and (seed, data position, sample): not of the batch, the chunks, the
// pages or the rank.

#include <functional>
#include <span>

#include "src/models/model.h"
#include "src/rollout/scheduler.h"

namespace temper {

struct EngineOptions {
  SchedulerOptions scheduler;
  int64_t page_tokens = 16;
  int64_t num_pages = 0;
  bool poison_free_pages = false;
  bool graphs = true;  // on a GPU: decode steps are recorded once per bucket and replayed
};

class Engine {
 public:
  /// All responses to requests[index], in order of sample.
  using OnFinished = std::function<void(size_t index, std::vector<Response> responses)>;
  /// Text that sample of requests[index] grew by (only with a tokenizer).
  using OnText = std::function<void(size_t index, int32_t sample, const std::string& text)>;

  Engine(const Model& model, const EngineOptions& options, Lane& lane);

  /// Prompts must be non-empty and leave room for a token in the model's context and in the cache.
  /// Groups come back when all their samples are finished, or cut by tokens_per_call.
  RolloutCounters generate(Ctx& c, std::span<const Request> requests, const GenerateOptions& options,
                           const Tokenizer* tokenizer, const OnFinished& on_finished,
                           const OnText& on_text = {});

  int64_t cache_bytes() const;

 private:
  const Model& model_;
  EngineOptions options_;
  KvCache cache_;
};

}  // namespace temper
