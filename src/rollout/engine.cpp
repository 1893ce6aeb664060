#include "src/rollout/engine.h"

#include <algorithm>

#include "src/core/process/progress.h"
#include "src/models/join_pass.h"

namespace temper {

Engine::Engine(const Model& model, const EngineOptions& options, Lane& lane, const Pipeline& pipeline)
    : model_(model),
      pipeline_(pipeline),
      others_(options.others),
      scheduler_(options.scheduler),
      routes_(pipeline.stages() == 1 ? options.routes : RouteShape{}),  // a stage knows its own layers alone
      cache_(KvShape(model), options.num_pages, options.page_tokens, options.poison_free_pages, lane) {
  scheduler_.steps_at_once = pipeline.stages();
  const bool records = options.graphs && pipeline.stages() == 1 && DecodeGraphs::can_record(model);
  if (records) graphs_.emplace(model, cache_, lane, routes_);
}

RolloutCounters Engine::generate(Ctx& c, std::span<const Request> requests, const GenerateOptions& options,
                                 const Tokenizer* tokenizer, const OnFinished& on_finished,
                                 const OnText& on_text) {
  Generation generation(*this, options, tokenizer, on_text);
  for (const Request& request : requests) generation.add(request);
  while (!generation.done())
    for (Generation::Finished& f : generation.step(c)) on_finished(f.request, std::move(f.responses));
  return generation.counters();
}

Generation::Generation(Engine& engine, const GenerateOptions& options, const Tokenizer* tokenizer,
                       Engine::OnText on_text)
    : engine_(engine),
      options_(options),
      sampler_(options_),
      text_(options_, tokenizer),
      on_text_(std::move(on_text)),
      scheduler_(engine.cache_, engine.scheduler_),
      requests_(options_.version),
      under_way_(static_cast<size_t>(engine.pipeline_.stages())) {
  CHECK(engine.cache_.num_free() == engine.cache_.num_pages(),
        "another generation holds pages of the engine");
  engine.cache_.resume();
}

size_t Generation::add(Request request) {
  check_request(request, engine_.capacity(), engine_.model_.config());
  CHECK(request.data_position >= 0 && request.data_position < SampleKey::kMaxPosition &&
            request.num_samples <= SampleKey::kMaxSample,
        "no random numbers for {} samples of the prompt at {}", request.num_samples, request.data_position);
  auto prompt = std::make_unique<Sequence>();
  prompt->data_position = request.data_position;
  prompt->prompt_tokens = static_cast<int64_t>(request.prompt.size());
  prompt->samples = open_samples(request, options_);
  CHECK(!prompt->samples.empty(), "prompt {} has no sample to go on with", request.data_position);
  for (const Response& r : request.begun) {
    if (!r.tokens.empty()) prompt->seen = prompt->prompt_tokens;  // its rows were counted
    prompt->after_stop |= tokens_before_stop(request.after_stop, r, options_.version) > 0;
  }
  prompt->counts = sampler_.edits().count(request.prompt, prompt->prompt_tokens);
  prompt->tokens = std::move(request.prompt);
  std::vector<Response> responses = std::move(request.begun);
  responses.resize(static_cast<size_t>(request.num_samples));
  const size_t number = requests_.add(prompt->samples.size(), std::move(responses), request.after_stop);
  prompt->request = number;
  scheduler_.add(std::move(prompt));
  return number;
}

std::vector<Generation::Finished> Generation::step(Ctx& c) {
  note_progress();
  const ArenaScope scope(c.scratch);
  if (engine_.pipeline_.stages() > 1) {
    turn_of_stage(c, true);
    return requests_.take_finished();
  }
  if (scheduler_.done()) return join_forward(c, engine_.model_), std::vector<Finished>{};
  const std::vector<ScheduledRows> rows = scheduler_.next();
  const LaneSpan span(c.lane, work_of_step(rows), std::ssize(rows));
  can_replay(rows) ? replay(c, rows) : run(c, rows);
  return requests_.take_finished();
}

void Generation::run(Ctx& c, std::span<const ScheduledRows> rows) {
  const StepBatch batch(rows);
  const StepRoutes routes(c, engine_.model_.config(), engine_.routes_, batch.num_rows());
  const Tensor hidden = batch.forward(c, engine_.model_, engine_.cache_, {}, routes.notes());
  routes.keep(c, rows);
  scheduler_.commit(rows);
  const std::vector<DrawTarget> targets = fork_prompts(batch.last_rows());
  if (!targets.empty()) append(targets, sampler_.draw(c, engine_.model_.head(), hidden, targets));
}

/// Steps of decoding rows alone are recorded; graphs have no room for edits of logits.
bool Generation::can_replay(std::span<const ScheduledRows> rows) const {
  return engine_.graphs_ && std::all_of(rows.begin(), rows.end(), [&](const ScheduledRows& part) {
           return part.sequence->decoding() && !sampler_.edits_next(*part.sequence);
         });
}

void Generation::replay(Ctx& c, std::span<const ScheduledRows> rows) {
  std::vector<DecodeRow> batch;
  std::vector<DrawTarget> targets;
  for (const ScheduledRows& part : rows) {
    Sequence& s = *part.sequence;
    targets.push_back({static_cast<int32_t>(batch.size()), &s});
    batch.push_back({s.tokens.back(), static_cast<int32_t>(s.cached), s.pages, sampler_.row(s)});
  }
  const DrawnTokens drawn = engine_.graphs_->run(c, batch, options_.num_sampleable);
  if (const RouteShape& shape = engine_.routes_; shape.layers > 0)
    keep_routes(rows, engine_.model_.config(), shape, engine_.graphs_->chosen());
  scheduler_.commit(rows);
  append(targets, drawn);
}

/// A prompt's last row is sampled once for each of its new samples; a sequence's last row once.
std::vector<DrawTarget> Generation::fork_prompts(const std::vector<DrawTarget>& last_rows) {
  std::vector<DrawTarget> targets;
  for (const auto& [row, sequence] : last_rows) {
    if (!sequence->is_prompt()) {
      targets.push_back({row, sequence});
      continue;
    }
    for (Sequence* sample : scheduler_.fork(*sequence)) {
      go_on(*sample);
      if (sample->missing() == 0) targets.push_back({row, sample});
    }
  }
  return targets;
}

/// Gives a sample of a prompt what an earlier call generated; its rows are then missing in the cache.
void Generation::go_on(Sequence& s) {
  const auto [before, made] = requests_.take_begun(s);
  s.after_stop = made > 0;
  if (before.tokens.empty()) return;
  text_.skip(s, before.text);
  for (size_t i = 0; i < before.tokens.size(); ++i) take(s, before.tokens[i], before.logprobs[i]);
  if (!before.routes.empty()) s.response.routes = before.routes;
  auto& versions = s.response.versions = before.versions;
  if (!versions.empty() && versions.back().second == 0) versions.pop_back();  // its call makes some now
  s.begun_tokens = s.new_tokens() - made;
  s.seen = s.size() - 1;  // the last token was never fed
}

/// The response grows by a token; true when the token ends it.
bool Generation::take(Sequence& s, int32_t token, double logprob) {
  s.tokens.push_back(token);
  sampler_.edits().count_next(s.counts, token);
  s.response.tokens.push_back(token);
  s.response.mask.push_back(1);
  s.response.logprobs.push_back(logprob);
  const auto& stops = options_.stop_token_ids;
  const bool stop_id = std::find(stops.begin(), stops.end(), token) != stops.end();
  const bool stop_text = text_.grow(s, token);
  return stop_id || stop_text;
}

void Generation::append(std::span<const DrawTarget> targets, const DrawnTokens& drawn) {
  note_work(0, static_cast<int64_t>(targets.size()));
  for (size_t i = 0; i < targets.size(); ++i)
    append(*targets[i].sequence, drawn.tokens[i], drawn.logprobs[i]);
}

void Generation::append(Sequence& s, int32_t token, double logprob) {
  sampler_.require_drawn(s, token, logprob);
  s.got_token();
  const bool stopped = take(s, token, logprob);
  const int64_t added = s.new_tokens() - s.begun_tokens;
  const bool full = s.new_tokens() >= options_.max_new_tokens || s.size() >= engine_.capacity();
  const bool cut = options_.tokens_per_call > 0 && added >= options_.tokens_per_call;
  if (stopped || full) {
    s.response.finish = stopped ? FinishReason::stop : FinishReason::length;
    text_.end(s);
  }
  if (on_text_)
    if (const std::string text = text_.take_certain(s); !text.empty()) on_text_(s.request, s.sample, text);
  if (stopped || full || cut) finish(s);
}

std::vector<Generation::Finished> Generation::cut(Ctx& c) {
  end_steps(c);
  for (const std::unique_ptr<Sequence>& s : scheduler_.remove_all())
    s->is_prompt() ? requests_.put_away_prompt(*s) : requests_.put_away(*s);
  return requests_.take_finished();
}

void Generation::finish(Sequence& s) { requests_.put_away(*scheduler_.remove(s)); }

}  // namespace temper
