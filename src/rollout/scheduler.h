#pragma once
// Which rows run next. Every step takes one row of each decoding sequence (oldest first, at most
// max_running_sequences) and fills up with prefill chunks (at most prefill_chunk_tokens rows). A prompt is
// admitted when all its samples may run beside those that do (or alone). When pages, or states of gated delta
// nets, run out the youngest sequence gives its own back and is prefilled again later; of samples that are
// forked when too few states are free, those that get none are. Where the cache finds pages by their ids, a
// sequence begins behind the rows that it finds, and a prompt waits for one that is being prefilled and
// begins as it does. Nothing here changes a bit of a result. Where several steps are under way at once, the
// sequences of one that is not at its end are left out of the others.
//
// Ages: a sequence keeps its place in `active_`; prompts enter in request order, samples take their prompt's
// place.

#include <deque>
#include <list>
#include <span>
#include <vector>

#include "src/rollout/kv_cache.h"
#include "src/rollout/request.h"
#include "src/rollout/sequence.h"

namespace temper {

struct SchedulerOptions {
  int64_t max_running_sequences = 256;
  int64_t prefill_chunk_tokens = 512;
  int64_t steps_at_once = 1;  // sequences that decode are dealt to so many steps in turn
};

/// `rows` rows of a sequence, from position `first` on.
struct ScheduledRows {
  Sequence* sequence = nullptr;
  int64_t rows = 0, first = 0;
};

class Scheduler {
 public:
  Scheduler(KvCache& cache, const SchedulerOptions& options);
  /// Gives back the pages of sequences that an exception left unfinished.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void add(std::unique_ptr<Sequence> prompt);
  bool done() const { return waiting_.empty() && active_.empty(); }

  /// Rows of the next step with pages for all of them; none only where sequences of steps under way
  /// keep their pages.
  std::vector<ScheduledRows> next();
  /// The rows of `next` are in the cache now; counts them.
  void commit(std::span<const ScheduledRows> step);
  /// Replaces a prefilled prompt by its samples, which share its pages and go on from its state.
  std::vector<Sequence*> fork(Sequence& prompt);
  /// Takes a finished sequence out and frees its pages.
  std::unique_ptr<Sequence> remove(Sequence& sequence);

  /// Takes out what waits or rests of a request; how many ends (Sequence::ends) that makes. What is at work
  /// is marked.
  size_t cancel(size_t request);

  /// All that is not finished, and their pages back.
  std::vector<std::unique_ptr<Sequence>> remove_all();

  const RolloutCounters& counters() const { return counters_; }

 private:
  bool admit();
  int64_t running() const;
  bool reserve(Sequence& s, int64_t rows);
  bool preempt_youngest(const Sequence& except);
  int64_t pages_wanted(const Sequence& s, int64_t rows) const;
  bool lacks_room(const Sequence& s, int64_t rows) const;
  bool share(Sequence& from, Sequence& sample);
  void drop_pages(Sequence& s);
  void find_pages(Sequence& s);
  bool waits_for_pages(const Sequence& prompt) const;
  void count(RolloutCounters& of, const RolloutCounters& rows);

  KvCache& cache_;
  SchedulerOptions options_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::list<std::unique_ptr<Sequence>> active_;  // oldest first
  RolloutCounters counters_;
};

}  // namespace temper
