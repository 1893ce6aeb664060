#include "src/rollout/engine.h"

#include <algorithm>

#include "src/core/process/progress.h"
#include "src/models/join_pass.h"
#include "src/rollout/prompt_scores.h"

namespace temper {

Engine::Engine(const Model& model, const EngineOptions& options, Lane& lane, const Pipeline& pipeline)
    : model_(model),
      pipeline_(pipeline),
      others_(options.others),
      scheduler_(options.scheduler),
      routes_(pipeline.stages() == 1 ? options.routes : RouteShape{}),  // a stage knows its own layers alone
      cache_(KvShape(model), options.num_pages, options.page_tokens, options.poison_free_pages, lane) {
  scheduler_.steps_at_once = pipeline.stages();
  cache_.keep_states(model, options.num_states > 0 ? options.num_states : scheduler_.max_running_sequences);
  const bool records = options.graphs && pipeline.stages() == 1 && StepGraphs::can_record(model);
  if (records) graphs_.emplace(model, cache_, lane, scheduler_.max_running_sequences, routes_);
  CHECK(!options.find_pages || routes_.layers == 0, "rows that are found have no recorded routes");
  if (options.find_pages) cache_.find_pages_by_ids();
}

RolloutCounters Engine::generate(Ctx& c, std::span<const Request> requests, const GenerateOptions& options,
                                 const Tokenizer* tokenizer, const OnFinished& on_finished,
                                 const OnGrown& on_grown) {
  Generation generation(*this, options, tokenizer, on_grown);
  for (const Request& request : requests) generation.add(request);
  while (!generation.done())
    for (Generation::Finished& f : generation.step(c)) on_finished(f.request, std::move(f.responses));
  return generation.counters();
}

Generation::Generation(Engine& engine, const GenerateOptions& options, const Tokenizer* tokenizer,
                       Engine::OnGrown on_grown, OnScored on_scored)
    : engine_(engine),
      rules_(std::make_shared<ResponseRules>(options)),
      options_(rules_->options),
      sampler_(options_.num_sampleable),
      growth_(tokenizer, std::move(on_grown), engine.capacity()),
      on_scored_(std::move(on_scored)),
      scheduler_(engine.cache_, engine.scheduler_),
      requests_(options_.version),
      under_way_(static_cast<size_t>(engine.pipeline_.stages())) {
  CHECK(engine.cache_.num_free() == engine.cache_.num_pages(),
        "another generation holds pages of the engine");
  engine.cache_.forget();  // other weights may be there than those of the last one
  engine.cache_.resume();
}

size_t Generation::add(Request request) {
  check_request(request, engine_.capacity(), engine_.model_.config());
  auto prompt = std::make_unique<Sequence>();
  prompt->rules = request.own ? std::make_shared<ResponseRules>(*request.own) : rules_;
  CHECK(growth_.finds(prompt->rules->options), "stop strings need a tokenizer");
  prompt->data_position = request.data_position;
  prompt->first_sample = request.first_sample;
  prompt->prompt_tokens = static_cast<int64_t>(request.prompt.size());
  prompt->samples = open_samples(request, options_);
  CHECK(!prompt->samples.empty() || request.scores_prompt, "prompt {} has no work", request.data_position);
  for (const Response& r : request.begun) {
    if (!r.tokens.empty()) prompt->seen = prompt->prompt_tokens;  // its rows were counted
    prompt->after_stop |= tokens_before_stop(request.after_stop, r, options_.version) > 0;
  }
  prompt->counts = prompt->rules->edits.count(request.prompt, prompt->prompt_tokens);
  prompt->tokens = std::move(request.prompt);
  request.begun.resize(static_cast<size_t>(request.num_samples));
  if (request.scores_prompt) {
    CHECK(on_scored_ && engine_.pipeline_.stages() == 1, "nobody scores prompts here");
    prompt->scores.emplace(prompt->tokens.size());
  }
  const size_t number = requests_.add(prompt->ends(), std::move(request.begun), request.after_stop);
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
  std::vector<ScheduledRows> rows = scheduler_.next();
  const LaneSpan span(c.lane, work_of_step(rows), std::ssize(rows));
  int64_t prefilled = 0;
  for (const ScheduledRows& part : rows) prefilled += part.rows - 1;
  auto replayed = rows.begin();
  const bool few = prefilled <= StepGraphs::kMostPrefilled;
  const auto replays = [&](const ScheduledRows& part) { return can_replay(part, few); };
  if (engine_.cache_.finds_pages() || std::all_of(rows.begin(), rows.end(), replays))
    replayed = std::stable_partition(rows.begin(), rows.end(), replays);
  if (replayed != rows.begin()) replay(c, {rows.begin(), replayed});
  if (replayed != rows.end()) run(c, {replayed, rows.end()});
  return requests_.take_finished();
}

void Generation::run(Ctx& c, std::span<const ScheduledRows> rows) {
  const StepBatch batch(rows);
  const StepRoutes routes(c, engine_.model_.config(), engine_.routes_, batch.num_rows());
  const Tensor hidden = batch.forward(c, engine_.model_, engine_.cache_, {}, routes.notes());
  routes.keep(c, rows);
  score_prompts(c, rows, engine_.model_.head(), hidden, options_.num_sampleable);
  scheduler_.commit(rows);
  const std::vector<DrawTarget> targets = fork_prompts(batch.last_rows());
  if (!targets.empty()) append(targets, sampler_.draw(c, engine_.model_.head(), hidden, targets));
}

/// Graphs have no room for edits of logits, and draw once for a sequence. Where turns come in nearly every
/// step, their rows are replayed, too; else those of prompts are many, and such steps few.
bool Generation::can_replay(const ScheduledRows& part, bool few_prefilled) const {
  const Sequence& s = *part.sequence;
  if (!engine_.graphs_ || sampler_.edits_next(s)) return false;
  return s.decoding() || (engine_.cache_.finds_pages() && few_prefilled && s.ends() == 1 && !s.scores);
}

void Generation::cancel(size_t request) {
  if (const size_t ends = scheduler_.cancel(request); ends > 0) requests_.cancel(request, ends);
}

void Generation::replay(Ctx& c, std::span<const ScheduledRows> rows) {
  const StepBatch batch(rows);
  // The step runs when all that it draws is known: a prompt is its sample from here on.
  scheduler_.commit(rows);
  const std::vector<DrawTarget> targets = fork_prompts(batch.last_rows());
  std::vector<StepDraw> draws;
  for (const DrawTarget& target : targets) draws.push_back({target.row, sampler_.row(*target.sequence)});
  const DrawnTokens drawn = engine_.graphs_->run(c, batch.lists(), draws, options_.num_sampleable);
  if (const RouteShape& shape = engine_.routes_; shape.layers > 0)
    keep_routes(rows, engine_.model_.config(), shape, engine_.graphs_->chosen());
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
    if (sequence->scores) on_scored_(sequence->request, *std::exchange(sequence->scores, {}));
    if (sequence->samples.empty()) requests_.put_away_prompt(*sequence);  // only scored
    for (Sequence* sample : scheduler_.fork(*sequence)) {
      growth_.go_on(*sample, requests_);
      if (sample->missing() == 0) targets.push_back({row, sample});
    }
  }
  return targets;
}

void Generation::append(std::span<const DrawTarget> targets, const DrawnTokens& drawn) {
  note_work(0, static_cast<int64_t>(targets.size()));
  for (size_t i = 0; i < targets.size(); ++i)
    append(*targets[i].sequence, drawn.tokens[i], drawn.logprobs[i]);
}

void Generation::append(Sequence& s, int32_t token, double logprob) {
  if (s.cancelled) {
    requests_.cancel(s.request, 1);
    scheduler_.remove(s);
    return;
  }
  sampler_.require_drawn(s, token, logprob);
  if (growth_.append(s, token, logprob)) requests_.put_away(*scheduler_.remove(s));
}

std::vector<Generation::Finished> Generation::cut(Ctx& c) {
  end_steps(c);
  for (const std::unique_ptr<Sequence>& s : scheduler_.remove_all())
    s->is_prompt() ? requests_.put_away_prompt(*s) : requests_.put_away(*s);
  return requests_.take_finished();
}

}  // namespace temper
