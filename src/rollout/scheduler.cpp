#include "src/rollout/scheduler.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace temper {
namespace {

int64_t num_samples(const Sequence& prompt) { return static_cast<int64_t>(prompt.samples.size()); }

}  // namespace

Scheduler::Scheduler(KvCache& cache, const SchedulerOptions& options) : cache_(cache), options_(options) {
  if (const StateCache* const states = cache.states())
    options_.max_running_sequences = std::min(options_.max_running_sequences, states->sequences());
}

Scheduler::~Scheduler() {
  for (auto& s : active_) drop_pages(*s);
}

void Scheduler::add(std::unique_ptr<Sequence> prompt) {
  prompt->prompt_rows = std::make_shared<RolloutCounters>();
  waiting_.push_back(std::move(prompt));
}

void Scheduler::count(RolloutCounters& of, const RolloutCounters& rows) {
  temper::add(counters_, rows);
  temper::add(of, rows);
}

int64_t Scheduler::pages_wanted(const Sequence& s, int64_t rows) const {
  int64_t wanted = cache_.pages_for(s.cached + rows) - static_cast<int64_t>(s.pages.size());
  const bool into_last_page = s.cached % cache_.page_tokens() != 0;
  if (rows > 0 && into_last_page && cache_.shared(s.pages.back())) ++wanted;  // copy on write
  return wanted;
}

void Scheduler::drop_pages(Sequence& s) {
  cache_.note(s.tokens, s.pages, s.cached, /*ended=*/true, s.noted);
  // The end of a beginning is let go before what it stands on.
  for (auto page = s.pages.rbegin(); page != s.pages.rend(); ++page) cache_.release(*page);
  s.pages.clear();
  if (StateCache* const states = cache_.states()) states->drop(s.state);
  s.noted = {};
  s.cached = 0;
}

/// A sequence without rows in the cache takes those that are there. Its last row is always fed.
void Scheduler::find_pages(Sequence& s) {
  if (!cache_.finds_pages() || !s.pages.empty() || s.scores) return;
  PageIndex::Found found = cache_.find(std::span(s.tokens).first(s.tokens.size() - 1));
  s.pages = std::move(found.pages);
  s.noted = found.noted;
  s.cached = found.tokens;
  if (s.is_prompt() && s.seen == 0) s.found = found.tokens;
  if (!s.after_stop && s.cached > s.seen)
    count(s.is_prompt() ? *s.prompt_rows : s.rows, {.rows_shared = s.cached - s.seen});
  s.seen = std::max(s.seen, s.cached);
}

/// A page or more of its beginning is being prefilled by another prompt.
bool Scheduler::waits_for_pages(const Sequence& prompt) const {
  return cache_.finds_pages() && std::any_of(active_.begin(), active_.end(), [&](const auto& s) {
           if (!s->is_prompt()) return false;
           const auto& [a, b] = std::tie(s->tokens, prompt.tokens);
           const auto common = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
           return common >= (s->noted.pages + 1) * cache_.page_tokens();
         });
}

/// Takes the pages of the youngest sequence that holds any, may lose them and is younger than `except`.
bool Scheduler::preempt_youngest(const Sequence& except) {
  for (auto at = active_.rbegin(); at != active_.rend(); ++at) {
    Sequence& victim = **at;
    if (&victim == &except) return false;
    if (victim.pages.empty() || victim.at_work()) continue;
    drop_pages(victim);
    ++counters_.preemptions;
    return true;
  }
  return false;
}

/// Too few pages or tails are free for `rows` more rows of `s`.
bool Scheduler::lacks_room(const Sequence& s, int64_t rows) const {
  const StateCache* const states = cache_.states();
  return pages_wanted(s, rows) > cache_.num_free() ||
         (states && s.state.empty() && states->free_tails() == 0);
}

/// Makes room for `rows` more rows of `s`, taking pages from younger sequences if it must.
bool Scheduler::reserve(Sequence& s, int64_t rows) {
  StateCache* const states = cache_.states();
  const bool into_last_page = s.cached % cache_.page_tokens() != 0;
  while (lacks_room(s, rows))
    if (!preempt_youngest(s) && !(into_last_page && cache_.unlearn(s.pages.back()))) return false;
  if (states) {
    if (!states->can_advance(s.state, s.cached, rows)) return false;
    states->advance(s.state, s.cached, rows);
  }
  if (into_last_page && cache_.shared(s.pages.back())) s.pages.back() = cache_.copy(s.pages.back());
  while (static_cast<int64_t>(s.pages.size()) < cache_.pages_for(s.cached + rows))
    s.pages.push_back(cache_.take());
  return true;
}

/// Active sequences; a prompt counts as the samples that it will be.
int64_t Scheduler::running() const {
  int64_t count = 0;
  for (const auto& s : active_) count += s->is_prompt() ? num_samples(*s) : 1;
  return count;
}

/// Lets the next prompt in when its pages are free without taking any from others.
bool Scheduler::admit() {
  if (waiting_.empty()) return false;
  const int64_t active = running();
  if (active > 0 && active + num_samples(*waiting_.front()) > options_.max_running_sequences) return false;
  if (active > 0 && cache_.pages_for(waiting_.front()->size()) > cache_.num_free()) return false;
  if (waits_for_pages(*waiting_.front())) return false;
  active_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  return true;
}

std::vector<ScheduledRows> Scheduler::next() {
  if (StateCache* const states = cache_.states())
    for (auto& s : active_)
      if (s->steps == 0) states->settle(s->state);
  std::vector<ScheduledRows> step;
  const int64_t turns = options_.steps_at_once;
  int64_t prefill_rows = options_.prefill_chunk_tokens,
          decode_rows = std::min(options_.max_running_sequences, (running() + turns - 1) / turns);
  const auto schedule = [&](Sequence& s) {
    if (s.cached == 0) find_pages(s);
    int64_t rows = std::min(s.missing(), prefill_rows);
    if (s.decoding()) rows = decode_rows > 0 ? 1 : 0;
    if (rows == 0 || !reserve(s, rows)) return;
    (s.decoding() ? decode_rows : prefill_rows) -= rows;
    step.push_back({&s, rows, s.cached});
  };
  // Oldest first, so that a younger sequence is preempted before it is scheduled in this step.
  for (auto& s : active_) schedule(*s);
  while (prefill_rows > 0 && admit()) schedule(*active_.back());
  const auto at_work = [](const auto& s) { return s->at_work(); };
  CHECK(!step.empty() || std::any_of(active_.begin(), active_.end(), at_work),
        "{} active and {} waiting sequences, {} free pages of {}, nothing can run", active_.size(),
        waiting_.size(), cache_.num_free(), cache_.num_pages());
  return step;
}

void Scheduler::commit(std::span<const ScheduledRows> step) {
  for (const ScheduledRows& part : step) {
    Sequence& s = *part.sequence;
    const int64_t end = part.first + part.rows;
    const int64_t again = std::max<int64_t>(0, std::min(end, s.seen) - part.first);
    RolloutCounters rows{.rows_recomputed = s.after_stop ? 0 : again};
    (s.is_prompt() ? rows.rows_prefilled : rows.rows_generated) = part.rows - again;
    count(s.is_prompt() ? *s.prompt_rows : s.rows, rows);
    s.cached = end;
    s.seen = std::max(s.seen, end);
  }
}

/// A sample has the rows of its prompt, whose state the first sample takes; the others, if there is none for
/// them, have no rows.
bool Scheduler::share(Sequence& from, Sequence& sample) {
  sample.seen = from.cached;
  if (StateCache* const states = cache_.states()) {
    if (!from.is_prompt() && states->free_tails() == 0) return false;
    from.is_prompt() ? std::swap(from.state, sample.state) : states->fork(from.state, sample.state);
  }
  sample.pages = from.pages;
  sample.noted = from.noted;
  sample.cached = from.cached;
  for (const int32_t page : sample.pages) cache_.retain(page);
  return true;
}

std::vector<Sequence*> Scheduler::fork(Sequence& prompt) {
  const auto at =
      std::find_if(active_.begin(), active_.end(), [&](const auto& s) { return s.get() == &prompt; });
  CHECK(at != active_.end() && prompt.is_prompt() && prompt.missing() == 0,
        "fork of a sequence that is no ready prompt");
  cache_.note(prompt.tokens, prompt.pages, prompt.cached, /*ended=*/true, prompt.noted);
  std::vector<Sequence*> samples;
  int64_t sharing = 0;
  for (const int32_t i : prompt.samples) {
    auto s = std::make_unique<Sequence>();
    s->request = prompt.request;
    s->rules = prompt.rules;
    s->cancelled = prompt.cancelled;
    s->data_position = prompt.data_position;
    s->sample = i;
    s->first_sample = prompt.first_sample;
    s->tokens = prompt.tokens;
    s->prompt_tokens = prompt.prompt_tokens;
    s->counts = prompt.counts;
    s->after_stop = prompt.after_stop;
    s->prompt_rows = prompt.prompt_rows;
    s->found = prompt.found;
    s->response.routes = prompt.response.routes;
    sharing += share(samples.empty() ? prompt : *samples.front(), *s) ? 1 : 0;
    samples.push_back(s.get());
    active_.insert(at, std::move(s));
  }
  if (!prompt.after_stop && sharing > 1)
    count(*prompt.prompt_rows, {.rows_shared = (sharing - 1) * prompt.cached});
  drop_pages(prompt);
  active_.erase(at);
  return samples;
}

std::unique_ptr<Sequence> Scheduler::remove(Sequence& sequence) {
  const auto at =
      std::find_if(active_.begin(), active_.end(), [&](const auto& s) { return s.get() == &sequence; });
  CHECK(at != active_.end(), "removal of a sequence that is not active");
  drop_pages(sequence);
  std::unique_ptr<Sequence> result = std::move(*at);
  active_.erase(at);
  return result;
}

size_t Scheduler::cancel(size_t request) {
  size_t ends = 0;
  const auto goes = [&](const std::unique_ptr<Sequence>& s) {
    if (s->request != request) return false;
    s->cancelled = s->at_work();
    if (s->cancelled) return false;
    ends += s->ends();
    drop_pages(*s);
    return true;
  };
  std::erase_if(waiting_, goes);
  std::erase_if(active_, goes);
  return ends;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::remove_all() {
  std::vector<std::unique_ptr<Sequence>> all;
  for (auto& s : active_) {
    temper::add(counters_, std::exchange(s->rows, {}), -1);
    temper::add(counters_, std::exchange(*s->prompt_rows, {}), -1);
    drop_pages(*s);
    all.push_back(std::move(s));
  }
  for (auto& s : waiting_) all.push_back(std::move(s));
  active_.clear();
  waiting_.clear();
  return all;
}

}  // namespace temper
