#include "src/rollout/engine.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/models/layer_pass.h"
#include "src/ops/rows.h"
#include "src/rollout/decode_graph.h"
#include "src/rollout/logit_edits.h"

namespace temper {
namespace {

/// The packed batch of one step, and which of its rows are sampled for whom.
struct StepBatch {
  std::vector<int32_t> tokens, positions, cu_seqlens{0}, page_table, lengths;
  std::vector<int32_t> rows;         // row of the batch to sample from
  std::vector<Sequence*> sequences;  // its sequence

  StepBatch(std::span<const ScheduledRows> step, int64_t pages_per_sequence) {
    for (const ScheduledRows& part : step) {
      Sequence& s = *part.sequence;
      for (int64_t i = s.cached; i < s.cached + part.rows; ++i) {
        tokens.push_back(s.tokens[static_cast<size_t>(i)]);
        positions.push_back(static_cast<int32_t>(i));
      }
      cu_seqlens.push_back(static_cast<int32_t>(tokens.size()));
      lengths.push_back(static_cast<int32_t>(s.cached + part.rows));
      page_table.insert(page_table.end(), s.pages.begin(), s.pages.end());
      page_table.resize(lengths.size() * static_cast<size_t>(pages_per_sequence), 0);
      if (part.rows < s.missing()) continue;
      rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
      sequences.push_back(&s);
    }
  }
};

/// One call of Engine::generate.
class Run {
 public:
  Run(const Model& model, KvCache& cache, const EngineOptions& engine, std::span<const Request> requests,
      const GenerateOptions& options, const Tokenizer* tokenizer, const Engine::OnFinished& on_finished,
      const Engine::OnText& on_text)
      : model_(model),
        cache_(cache),
        requests_(requests),
        options_(options),
        edits_(options),
        tokenizer_(tokenizer),
        on_finished_(on_finished),
        on_text_(on_text),
        scheduler_(cache, engine.scheduler),
        unfinished_(requests.size()),
        responses_(requests.size()) {
    CHECK(options.stop.empty() || tokenizer, "stop strings need a tokenizer");
    if (engine.graphs && model.device() == Device::cuda)
      graphs_.emplace(model, cache, options.num_sampleable);
    for (size_t i = 0; i < requests.size(); ++i) add(i);
  }

  RolloutCounters finish(Ctx& c) {
    while (!scheduler_.done()) {
      ArenaScope scope(c.scratch);
      step(c);
    }
    return scheduler_.counters();
  }

 private:
  void add(size_t i) {
    const Request& r = requests_[i];
    const auto length = static_cast<int64_t>(r.prompt.size());
    int64_t longest = length;
    for (const Response& c : r.begun)
      if (c.finish == FinishReason::unfinished)
        longest = std::max(longest, length + static_cast<int64_t>(c.tokens.size()));
    const int64_t capacity = std::min(model_.context_tokens(), cache_.num_pages() * cache_.page_tokens());
    if (length == 0 || longest >= capacity)
      fail(Exit::data, {.what = length == 0 ? "a prompt has no tokens" : "a prompt is too long",
                        .where = fmt::format("prompt {}", r.data_position),
                        .why = fmt::format("{} tokens{}; 1 to {} fit into context and cache", longest,
                                           longest > length ? " with the begun response" : "", capacity - 1),
                        .fix = "take the prompt out, or raise model.context_tokens or rollout.kv_memory"});
    require_ids(r.prompt, r.data_position);
    for (const Response& c : r.begun) require_ids(c.tokens, r.data_position);
    CHECK(r.begun.empty() || r.begun.size() == static_cast<size_t>(r.num_samples), "{} of {} samples begun",
          r.begun.size(), r.num_samples);
    responses_[i] = r.begun;
    responses_[i].resize(static_cast<size_t>(r.num_samples));
    auto prompt = std::make_unique<Sequence>();
    for (int32_t sample = 0; sample < r.num_samples; ++sample)
      if (responses_[i][static_cast<size_t>(sample)].finish == FinishReason::unfinished)
        prompt->samples.push_back(sample);
    CHECK(!prompt->samples.empty(), "prompt {} has no sample to go on with", r.data_position);
    unfinished_[i] = prompt->samples.size();
    prompt->request = i;
    prompt->tokens = r.prompt;
    prompt->prompt_tokens = length;
    prompt->seen = r.begun.empty() ? 0 : length;
    prompt->counts = edits_.count(r.prompt, length);
    scheduler_.add(std::move(prompt));
  }

  void require_ids(const std::vector<int32_t>& tokens, int64_t data_position) const {
    for (const int32_t id : tokens)
      if (id < 0 || id >= model_.config().vocab_size)
        fail(Exit::data, {.what = "a prompt holds something that is no token id",
                          .where = fmt::format("prompt {}", data_position),
                          .why = fmt::format("{}; ids are 0 to {}", id, model_.config().vocab_size - 1),
                          .fix = "take the token out, or use the tokenizer of this model"});
  }

  void step(Ctx& c) {
    const std::vector<ScheduledRows> rows = scheduler_.next();
    const auto is_plain = [&](const ScheduledRows& part) {  // graphs have no room for edits
      return part.sequence->decoding() && !edits_.any_at(part.sequence->new_tokens());
    };
    if (graphs_ && std::all_of(rows.begin(), rows.end(), is_plain)) return decode(c, rows);
    int64_t pages = 1;
    for (const ScheduledRows& part : rows)
      pages = std::max(pages, static_cast<int64_t>(part.sequence->pages.size()));
    const StepBatch host(rows, pages);
    const auto num_tokens = static_cast<int64_t>(host.tokens.size()), n = static_cast<int64_t>(rows.size());
    const PagedKv kv = cache_.view(to_device(c, view_of(host.page_table.data(), {n, pages})),
                                   to_device(c, view_of(host.lengths.data(), {n})));
    const Batch batch{to_device(c, view_of(host.tokens.data(), {num_tokens})),
                      to_device(c, view_of(host.positions.data(), {num_tokens})),
                      to_device(c, view_of(host.cu_seqlens.data(), {n + 1})), &kv};
    const Tensor hidden = forward_pass(c, model_, batch);
    scheduler_.commit(rows);
    if (!host.rows.empty()) sample(c, hidden, host);
  }

  SampleRow sample_row(const Sequence& s) const {
    return {{options_.seed, requests_[s.request].data_position, s.sample},
            static_cast<uint32_t>(s.new_tokens()),
            options_.sampling,
            {}};
  }

  /// A step of decoding rows alone, recorded and replayed.
  void decode(Ctx& c, std::span<const ScheduledRows> step) {
    std::vector<DecodeRow> rows;
    std::vector<Sequence*> targets;
    for (const ScheduledRows& part : step) {
      Sequence& s = *part.sequence;
      rows.push_back({s.tokens.back(), static_cast<int32_t>(s.cached), s.pages, sample_row(s)});
      targets.push_back(&s);
    }
    const DrawnTokens drawn = graphs_->run(c, rows);
    scheduler_.commit(step);
    for (size_t i = 0; i < targets.size(); ++i)
      append(*targets[i], drawn.tokens[i], static_cast<double>(drawn.logprobs[i]));
  }

  /// Gives a sample of a prompt what an earlier call generated; its rows are then missing in the cache.
  void go_on(Sequence& s) {
    const std::vector<Response>& begun = requests_[s.request].begun;
    if (begun.empty()) return;
    const Response& before = begun[static_cast<size_t>(s.sample)];
    s.streamed = before.text.size() - begun_stop(before.text);
    for (size_t i = 0; i < before.tokens.size(); ++i) take_token(s, before.tokens[i], before.logprobs[i]);
    s.response.versions = before.versions;
    s.begun_tokens = s.new_tokens();
    s.seen = s.size() - 1;  // the last token was never fed
  }

  /// A prompt's last row is sampled once for each of its new samples; a sequence's last row once.
  void sample(Ctx& c, const Tensor& hidden, const StepBatch& host) {
    std::vector<int32_t> index;
    std::vector<Sequence*> targets;
    for (size_t i = 0; i < host.rows.size(); ++i) {
      Sequence& s = *host.sequences[i];
      std::vector<Sequence*> samples{&s};
      if (s.is_prompt()) samples = scheduler_.fork(s);
      for (Sequence* one : samples) {
        if (one != &s) go_on(*one);
        if (one->missing() > 0) continue;
        index.push_back(host.rows[i]);
        targets.push_back(one);
      }
    }
    std::vector<SampleRow> keys;
    std::vector<std::vector<LogitEdit>> edits;
    for (const Sequence* s : targets) {
      edits.push_back(edits_.at(s->counts, s->new_tokens()));
      keys.push_back(sample_row(*s));
      keys.back().edits = edits.back();
    }
    const auto n = static_cast<int64_t>(index.size());
    if (n == 0) return;
    Tensor chosen = c.scratch.make({n, hidden.dim(1)}, hidden.dtype);
    gather_rows(c, chosen, hidden, to_device(c, view_of(index.data(), {n})));
    const Sampled drawn = model_.head().sample(c, chosen, place_rows(c, keys), options_.num_sampleable);
    const std::vector<int32_t> tokens = to_host<int32_t>(c, drawn.tokens);
    const std::vector<double> logprobs = to_host<double>(c, drawn.logprob);
    for (size_t i = 0; i < targets.size(); ++i) append(*targets[i], tokens[i], logprobs[i]);
  }

  [[noreturn]] void fail_logits(const Sequence& s, double logprob) const {
    fail(Exit::numerics,
         {.what = "logits are not finite while sampling",
          .where = fmt::format("prompt at data position {}, sample {}, response position {}",
                               requests_[s.request].data_position, s.sample, s.size() - s.prompt_tokens),
          .why = fmt::format("the log-prob of the drawn token is {}", logprob),
          .fix = "check the weights for NaN and infinity: a diverged step, or a damaged model folder"});
  }

  [[noreturn]] void fail_nothing_left(const Sequence& s) const {
    fail(Exit::numerics,
         {.what = "no token is left to draw",
          .where = fmt::format("prompt at data position {}, sample {}, response position {}",
                               requests_[s.request].data_position, s.sample, s.size() - s.prompt_tokens),
          .why = fmt::format("{} logits were changed, {} ids may be drawn, and each is at -infinity",
                             edits_.at(s.counts, s.new_tokens()).size(), options_.num_sampleable),
          .fix = "lower rollout.min_new_tokens or take ids out of rollout.stop_token_ids"});
  }

  /// The response grows by a token; true when the token ends it.
  bool take_token(Sequence& s, int32_t token, double logprob) {
    s.tokens.push_back(token);
    edits_.count_next(s.counts, token);
    s.response.tokens.push_back(token);
    s.response.mask.push_back(1);
    s.response.logprobs.push_back(logprob);
    const bool stop_id = std::find(options_.stop_token_ids.begin(), options_.stop_token_ids.end(), token) !=
                         options_.stop_token_ids.end();
    const bool stop_text = tokenizer_ && grow_text(s, token);
    return stop_id || stop_text;
  }

  void append(Sequence& s, int32_t token, double logprob) {
    if (!std::isfinite(logprob)) fail_logits(s, logprob);
    if (token < 0) fail_nothing_left(s);
    const bool stopped = take_token(s, token, logprob);
    const int64_t capacity = std::min(model_.context_tokens(), cache_.num_pages() * cache_.page_tokens());
    const bool full = s.new_tokens() >= options_.max_new_tokens || s.size() >= capacity;
    const bool cut =
        options_.tokens_per_call > 0 && s.new_tokens() - s.begun_tokens >= options_.tokens_per_call;
    if (!stopped && !full && !cut) return;
    s.response.finish = stopped ? FinishReason::stop : full ? FinishReason::length : FinishReason::unfinished;
    finish(s);
  }

  /// Adds the text of a token; true when a stop string is complete (the text is cut before it).
  bool grow_text(Sequence& s, int32_t token) {
    if (!s.decoder) s.decoder = std::make_unique<StreamDecoder>(*tokenizer_, /*skip_special=*/true);
    return add_text(s, s.decoder->push(token));
  }

  bool add_text(Sequence& s, const std::string& more) {
    std::string& text = s.response.text;
    const size_t before = text.size();
    text += more;
    size_t cut = std::string::npos;
    for (const std::string& stop : options_.stop) {
      if (s.new_tokens() <= options_.min_new_tokens) break;
      const size_t from = before >= stop.size() ? before - stop.size() + 1 : 0;
      cut = std::min(cut, text.find(stop, from));
    }
    s.text_cut = cut != std::string::npos;
    if (s.text_cut) text.resize(cut);
    if (on_text_) stream(s, s.text_cut ? text.size() : text.size() - begun_stop(text));
    return s.text_cut;
  }

  /// Bytes at the end of `text` that may be the beginning of a stop string.
  size_t begun_stop(const std::string& text) const {
    size_t longest = 0;
    for (const std::string& stop : options_.stop)
      for (size_t n = std::min(stop.size(), text.size()); n > longest; --n)
        if (text.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    return longest;
  }

  void stream(Sequence& s, size_t end) {
    if (end <= s.streamed) return;
    on_text_(s.request, s.sample, s.response.text.substr(s.streamed, end - s.streamed));
    s.streamed = end;
  }

  void finish(Sequence& s) {
    const std::unique_ptr<Sequence> done = scheduler_.remove(s);
    const auto added = static_cast<int32_t>(done->new_tokens() - done->begun_tokens);
    done->response.versions.emplace_back(options_.version, added);
    const bool ended = done->response.finish != FinishReason::unfinished;
    if (done->decoder && ended && !done->text_cut) add_text(*done, done->decoder->finish());
    if (on_text_ && ended) stream(*done, done->response.text.size());
    const size_t i = done->request;
    responses_[i][static_cast<size_t>(done->sample)] = std::move(done->response);
    if (--unfinished_[i] == 0) on_finished_(i, std::move(responses_[i]));
  }

  const Model& model_;
  KvCache& cache_;
  std::span<const Request> requests_;
  const GenerateOptions& options_;
  const LogitEdits edits_;
  const Tokenizer* tokenizer_;
  const Engine::OnFinished& on_finished_;
  const Engine::OnText& on_text_;
  Scheduler scheduler_;
  std::optional<DecodeGraphs> graphs_;
  std::vector<size_t> unfinished_;  // by request: samples at work
  std::vector<std::vector<Response>> responses_;
};

}  // namespace

Engine::Engine(const Model& model, const EngineOptions& options, Lane& lane)
    : model_(model),
      options_(options),
      cache_(model.config(), model.dtype(), options.num_pages, options.page_tokens, options.poison_free_pages,
             lane) {}

RolloutCounters Engine::generate(Ctx& c, std::span<const Request> requests, const GenerateOptions& options,
                                 const Tokenizer* tokenizer, const OnFinished& on_finished,
                                 const OnText& on_text) {
  return Run(model_, cache_, options_, requests, options, tokenizer, on_finished, on_text).finish(c);
}

int64_t Engine::cache_bytes() const {
  return cache_.num_pages() * KvCache::page_bytes(model_.config(), model_.dtype(), cache_.page_tokens());
}

}  // namespace temper
