#pragma once
// Generation: continuous batching over a paged cache, through the same model and head as training. A sample
// is a pure function of weights, prompt and (seed, data position, sample), whatever is generated beside it.

#include <algorithm>
#include <functional>
#include <optional>
#include <span>

#include "src/models/model.h"
#include "src/nn/parallel/pipeline.h"
#include "src/nn/parallel/ranks_with_experts.h"
#include "src/rollout/responses/response_growth.h"
#include "src/rollout/scheduler.h"
#include "src/rollout/step_batch.h"
#include "src/rollout/step_graphs.h"
#include "src/rollout/step_routes.h"

namespace temper {

struct EngineOptions {
  SchedulerOptions scheduler;
  int64_t page_tokens = 16;
  int64_t num_pages = 0;
  bool poison_free_pages = false;
  bool graphs = true;       // on a GPU: steps are recorded once per bucket and replayed
  bool find_pages = false;  // requests take rows that earlier ones with the same beginning left in the cache
  int64_t num_states = 0;   // sequences with states of gated delta nets at once; 0: max_running_sequences
  RouteShape routes = {};   // responses get the routes of their tokens; without layers: they do not
  RanksWithExperts others = {};
};

/// What lives as long as the model: the cache, and the recorded steps of a GPU.
class Engine {
 public:
  /// All responses to requests[index], in order of sample.
  using OnFinished = std::function<void(size_t index, std::vector<Response> responses)>;
  using Grown = ResponseGrowth::Grown;
  using OnGrown = ResponseGrowth::OnGrown;

  /// The ranks of `pipeline` have the stages and make every call alike: each finds the same responses.
  Engine(const Model& model, const EngineOptions& options, Lane& lane, const Pipeline& pipeline = {});

  /// Adds all requests to a Generation and steps until it is done.
  RolloutCounters generate(Ctx& c, std::span<const Request> requests, const GenerateOptions& options,
                           const Tokenizer* tokenizer, const OnFinished& on_finished,
                           const OnGrown& on_grown = {});

  /// Between generations: lends the memory of the cache of a GPU, until the next one begins.
  void suspend() {
    cache_.suspend();
    if (graphs_) graphs_->suspend();
  }
  int64_t cache_bytes() const {
    return cache_.num_pages() * KvShape(model_).page_bytes(cache_.page_tokens());
  }
  int64_t held_bytes() const { return cache_.held_bytes() + (graphs_ ? graphs_->held_bytes() : 0); }
  /// Most tokens of a sequence: those of the model's context, or of the cache.
  int64_t capacity() const {
    return std::min(model_.context_tokens(), cache_.num_pages() * cache_.page_tokens());
  }
  /// Steps that were recorded so far.
  int64_t captures() const { return graphs_ ? graphs_->captures() : 0; }
  const RanksWithExperts& others() const { return others_; }

 private:
  friend class Generation;
  const Model& model_;
  Pipeline pipeline_;
  RanksWithExperts others_;
  SchedulerOptions scheduler_;
  RouteShape routes_;
  KvCache cache_;
  std::optional<StepGraphs> graphs_;
};

/// Requests that share options, on their way through an engine:
///   generation.add(request); while (!generation.done()) finished = generation.step(c);
/// An engine has one at a time; pages that are still taken at its end go back.
class Generation {
 public:
  using Finished = OpenRequests::Finished;

  /// Engine and tokenizer outlive it.
  /// Gets the scores of a prompt that wanted them, before its request is finished.
  using OnScored = std::function<void(size_t request, std::vector<PromptScore> scores)>;

  Generation(Engine& engine, const GenerateOptions& options, const Tokenizer* tokenizer,
             Engine::OnGrown on_grown = {}, OnScored on_scored = {});
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// At any time; Error(Exit::data) where the request is illegal. Returns its number: 0, 1, 2, ...
  size_t add(Request request);
  /// The request ends here, and is not among the finished ones. Nothing where it has ended.
  void cancel(size_t request);
  bool done() const { return !engine_.others_.somewhere(!scheduler_.done()); }
  /// One batch through the model, or through this stage of it. Returns the requests whose samples are all
  /// finished now, or cut by tokens_per_call.
  std::vector<Finished> step(Ctx& c);
  /// Ends here: the requests that are not finished, with what their samples have so far.
  std::vector<Finished> cut(Ctx& c);
  const RolloutCounters& counters() const { return scheduler_.counters(); }

 private:
  /// A step from its begin on the first stage until its tokens are known on all; without targets there are
  /// none.
  struct UnderWay {
    std::vector<ScheduledRows> rows = {};
    std::optional<StepBatch> batch = {};
    Tensor x = {};  // on the first stage: the stream that it goes on with, before another part than the first
    std::vector<DrawTarget> targets = {};
    std::vector<double> drawn = {};  // tokens, then log-probs, where they are known
  };
  /// A stage works on a part of itself for one of the steps.
  struct Slot {
    int part = 0, step = 0;
  };

  void turn_of_stage(Ctx& c, bool begins);
  void slot_of_stage(Ctx& c, const Slot& now, Tensor& room, bool begins);
  Tensor room_for_stream(Ctx& c, const UnderWay& coming, Tensor& room) const;
  void begin_step(UnderWay& step, bool begins);
  Tensor work_on(Ctx& c, UnderWay& step, int part);
  int parts() const;
  void end_steps(Ctx& c);
  std::vector<double> take_due(Ctx& c, UnderWay& due);
  void run(Ctx& c, std::span<const ScheduledRows> rows);
  bool can_replay(const ScheduledRows& part, bool few_prefilled) const;
  void replay(Ctx& c, std::span<const ScheduledRows> rows);
  std::vector<DrawTarget> fork_prompts(const std::vector<DrawTarget>& last_rows);
  void append(std::span<const DrawTarget> targets, const DrawnTokens& drawn);
  void append(Sequence& s, int32_t token, double logprob);

  Engine& engine_;
  const std::shared_ptr<const ResponseRules> rules_;  // of requests without own ones
  const GenerateOptions& options_;
  const Sampler sampler_;
  const ResponseGrowth growth_;
  const OnScored on_scored_;
  Scheduler scheduler_;
  OpenRequests requests_;
  std::vector<UnderWay> under_way_;  // as many as there are stages; of one stage: none
};

}  // namespace temper
