// The page pool and the scheduler, driven without a model: sequences grow by made-up tokens.

#include "src/rollout/scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

constexpr int64_t kPage = 16;

KvCache small_cache(int64_t num_pages, bool poison = true) {
  static Lane lane;
  return KvCache(KvShape(2, 32, DType::f32), num_pages, kPage, poison, lane);
}

/// All keys and values of one page, layer after layer.
std::vector<float*> page_rows(const KvCache& cache, int32_t page) {
  const PagedKv kv = cache.view({}, {});
  std::vector<float*> list;
  for (const Tensor& pool : {kv.keys, kv.values})
    for (int64_t layer = 0; layer < pool.dim(0); ++layer)
      list.push_back(pool.as<float>() + (layer * pool.dim(1) + page) * pool.dim(2));
  return list;
}

int64_t row_size(const KvCache& cache) { return cache.view({}, {}).keys.dim(2); }

void fill_page(const KvCache& cache, int32_t page, float value) {
  for (float* row : page_rows(cache, page)) std::fill_n(row, row_size(cache), value);
}

bool page_is(const KvCache& cache, int32_t page, float value) {
  for (const float* row : page_rows(cache, page))
    for (int64_t i = 0; i < row_size(cache); ++i)
      if (!(std::isnan(value) ? std::isnan(row[i]) : row[i] == value)) return false;
  return true;
}

TEST(KvCache, PagesAreCountedByReference) {
  KvCache cache = small_cache(3);
  const int32_t a = cache.take(), b = cache.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(cache.num_free(), 1);
  EXPECT_FALSE(cache.shared(a));
  cache.retain(a);
  EXPECT_TRUE(cache.shared(a));
  cache.release(a);
  EXPECT_FALSE(cache.shared(a));
  EXPECT_EQ(cache.num_free(), 1);
  cache.release(a);
  EXPECT_EQ(cache.num_free(), 2);
  cache.release(b);
  EXPECT_EQ(cache.num_free(), 3);
  EXPECT_EQ(cache.pages_for(0), 0);
  EXPECT_EQ(cache.pages_for(kPage), 1);
  EXPECT_EQ(cache.pages_for(kPage + 1), 2);
}

TEST(KvCache, MisuseIsCaught) {
  KvCache cache = small_cache(1);
  const int32_t page = cache.take();
  expect_error(Exit::internal, {"no free page"}, "take from an empty pool", [&] { cache.take(); });
  cache.release(page);
  expect_error(Exit::internal, {"free already"}, "double release", [&] { cache.release(page); });
  expect_error(Exit::internal, {"is free"}, "retain of a free page", [&] { cache.retain(page); });
}

TEST(KvCache, CopyIsPrivateAndFreePagesArePoisoned) {
  KvCache cache = small_cache(4);
  const int32_t page = cache.take(), other = cache.take();
  EXPECT_TRUE(page_is(cache, page, NAN));
  fill_page(cache, page, 3.0f);
  fill_page(cache, other, 4.0f);
  cache.retain(page);
  const int32_t own = cache.copy(page);
  EXPECT_NE(own, page);
  EXPECT_FALSE(cache.shared(page));
  EXPECT_TRUE(page_is(cache, own, 3.0f));
  fill_page(cache, own, 5.0f);
  EXPECT_TRUE(page_is(cache, page, 3.0f));
  cache.release(page);
  EXPECT_TRUE(page_is(cache, page, NAN));
  EXPECT_TRUE(page_is(cache, own, 5.0f));
  EXPECT_TRUE(page_is(cache, other, 4.0f));
}

/// Runs a scheduler to its end as the engine would and checks every step.
class Driver {
 public:
  Driver(KvCache& cache, const SchedulerOptions& options)
      : cache_(cache), options_(options), scheduler_(cache, options) {}

  void add(int64_t prompt_tokens, int32_t samples, int64_t new_tokens) {
    auto s = std::make_unique<Sequence>();
    s->request = samples_.size();
    s->tokens.assign(static_cast<size_t>(prompt_tokens), 1);
    s->prompt_tokens = prompt_tokens;
    for (int32_t i = 0; i < samples; ++i) s->samples.push_back(i);
    samples_.push_back(samples);
    new_tokens_.push_back(new_tokens);
    scheduler_.add(std::move(s));
  }

  void run() {
    for (int64_t steps = 0; !scheduler_.done(); ++steps) {
      ASSERT_LT(steps, 1000000);
      const std::vector<ScheduledRows> step = scheduler_.next();
      ASSERT_NO_FATAL_FAILURE(check(step));
      scheduler_.commit(step);
      idle_steps_ += step.empty();
      under_way_.push_back(awaiting(step));
      if (std::ssize(under_way_) == options_.steps_at_once) grow();
    }
    EXPECT_EQ(cache_.num_free(), cache_.num_pages());
  }

  const RolloutCounters& counters() const { return scheduler_.counters(); }
  /// (request, sample) in the order in which they ended.
  const std::vector<std::pair<size_t, int32_t>>& finished() const { return finished_; }
  int64_t most_decoding() const { return most_decoding_; }
  int64_t most_prefill() const { return most_prefill_; }
  int64_t idle_steps() const { return idle_steps_; }

 private:
  void check(const std::vector<ScheduledRows>& step) {
    int64_t decoding = 0, prefill = 0;
    std::map<int32_t, const Sequence*> written;
    std::set<const Sequence*> seen;
    for (const auto& [sequence, rows, first] : step) {
      ASSERT_TRUE(seen.insert(sequence).second) << "a sequence runs twice in a step";
      ASSERT_GE(rows, 1);
      ASSERT_EQ(first, sequence->cached);
      ASSERT_LE(rows, sequence->missing());
      (sequence->decoding() ? decoding : prefill) += rows;
      ASSERT_EQ(static_cast<int64_t>(sequence->pages.size()), cache_.pages_for(sequence->cached + rows));
      for (int64_t page = sequence->cached / kPage; page < std::ssize(sequence->pages); ++page) {
        const int32_t id = sequence->pages[static_cast<size_t>(page)];
        ASSERT_FALSE(cache_.shared(id)) << "page " << id << " is written while another sequence holds it";
        ASSERT_TRUE(written.emplace(id, sequence).second) << "page " << id << " is written by two sequences";
      }
    }
    ASSERT_LE(decoding, options_.max_running_sequences);
    ASSERT_LE(prefill, options_.prefill_chunk_tokens);
    most_decoding_ = std::max(most_decoding_, decoding);
    most_prefill_ = std::max(most_prefill_, prefill);
  }

  /// Sequences that get a token at the end of a step.
  std::vector<Sequence*> awaiting(const std::vector<ScheduledRows>& step) {
    std::vector<Sequence*> all;
    for (const ScheduledRows& part : step) {
      if (part.sequence->missing() > 0) continue;
      std::vector<Sequence*> ready{part.sequence};
      if (part.sequence->is_prompt()) ready = scheduler_.fork(*part.sequence);
      all.insert(all.end(), ready.begin(), ready.end());
    }
    return all;
  }
  /// The end of the oldest step that is under way.
  void grow() {
    for (Sequence* s : under_way_.front()) {
      ASSERT_EQ(s->missing(), 0) << "a sequence that waits for its token lost its pages";
      s->tokens.push_back(2);
      if (s->size() - s->prompt_tokens < new_tokens_[s->request]) continue;
      finished_.emplace_back(s->request, s->sample);
      scheduler_.remove(*s);
    }
    under_way_.pop_front();
  }

  KvCache& cache_;
  SchedulerOptions options_;
  Scheduler scheduler_;
  std::vector<int32_t> samples_;
  std::vector<int64_t> new_tokens_;
  std::vector<std::pair<size_t, int32_t>> finished_;
  std::deque<std::vector<Sequence*>> under_way_;
  int64_t most_decoding_ = 0, most_prefill_ = 0, idle_steps_ = 0;
};

TEST(Scheduler, NothingRunsTwiceWithEnoughPages) {
  KvCache cache = small_cache(400, false);
  Driver driver(cache, {.max_running_sequences = 8, .prefill_chunk_tokens = 13});
  int64_t prompts = 0, shared = 0, generated = 0;
  for (int64_t i = 0; i < 20; ++i) {
    const int64_t length = 1 + 7 * i % 50, n = 1 + i % 4, tokens = 1 + 5 * i % 40;
    driver.add(length, static_cast<int32_t>(n), tokens);
    prompts += length;
    shared += (n - 1) * length;
    generated += n * (tokens - 1);
  }
  driver.run();
  EXPECT_EQ(driver.counters().rows_prefilled, prompts);
  EXPECT_EQ(driver.counters().rows_shared, shared);
  EXPECT_EQ(driver.counters().rows_generated, generated);
  EXPECT_EQ(driver.counters().rows_recomputed, 0);
  EXPECT_EQ(driver.counters().preemptions, 0);
  EXPECT_EQ(driver.finished().size(), 50u);
  EXPECT_EQ(driver.most_decoding(), 8);
  EXPECT_EQ(driver.most_prefill(), 13);
}

/// Counts of useful rows are the same with few pages: everything else is counted as recomputed.
TEST(Scheduler, LimitsHoldUnderPreemption) {
  for (int64_t chunk : {1, 5, 64})
    for (int64_t running : {1, 3, 16}) {
      KvCache cache = small_cache(6, false);
      Driver driver(cache, {.max_running_sequences = running, .prefill_chunk_tokens = chunk});
      for (int i = 0; i < 6; ++i) driver.add(9 + 5 * i, 3, 50);
      driver.run();
      EXPECT_EQ(driver.counters().rows_prefilled, 6 * 9 + 5 * 15);
      EXPECT_EQ(driver.counters().rows_generated, 18 * 49);
      EXPECT_EQ(driver.finished().size(), 18u);
      if (running == 16) {
        EXPECT_GT(driver.counters().preemptions, 0);
        EXPECT_GT(driver.counters().rows_recomputed, 0);
      }
    }
}

/// Exactly the pages of one full sequence: each runs to its end alone, the oldest first.
TEST(Scheduler, OldestFinishesWithTheFewestPages) {
  KvCache cache = small_cache(4, false);
  Driver driver(cache, {.max_running_sequences = 16, .prefill_chunk_tokens = 64});
  for (int i = 0; i < 3; ++i) driver.add(21, 3, 4 * kPage - 21);
  driver.run();
  const std::vector<std::pair<size_t, int32_t>> in_order{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1},
                                                         {1, 2}, {2, 0}, {2, 1}, {2, 2}};
  EXPECT_EQ(driver.finished(), in_order);
  EXPECT_GT(driver.counters().preemptions, 0);
}

/// Three one-page samples need a second page each and one is free: the oldest takes it, the second takes the
/// page of the youngest, which comes back when the first has ended.
TEST(Scheduler, YoungestIsPreempted) {
  KvCache cache = small_cache(4, false);
  Scheduler scheduler(cache, {.max_running_sequences = 4, .prefill_chunk_tokens = 64});
  for (size_t i = 0; i < 3; ++i) {
    auto s = std::make_unique<Sequence>();
    s->request = i;
    s->tokens.assign(kPage, 1);
    s->prompt_tokens = kPage;
    s->samples = {0};
    scheduler.add(std::move(s));
  }
  std::vector<ScheduledRows> step = scheduler.next();
  ASSERT_EQ(step.size(), 3u);
  scheduler.commit(step);
  std::vector<Sequence*> samples;
  for (const ScheduledRows& part : step) samples.push_back(scheduler.fork(*part.sequence).front());
  for (Sequence* s : samples) s->tokens.push_back(2);

  step = scheduler.next();
  ASSERT_EQ(step.size(), 2u);
  EXPECT_EQ(step[0].sequence, samples[0]);
  EXPECT_EQ(step[1].sequence, samples[1]);
  EXPECT_EQ(scheduler.counters().preemptions, 1);
  EXPECT_TRUE(samples[2]->pages.empty());
  EXPECT_EQ(samples[2]->cached, 0);
  scheduler.commit(step);

  scheduler.remove(*samples[0]);
  samples[1]->tokens.push_back(2);
  step = scheduler.next();
  ASSERT_EQ(step.size(), 2u);
  EXPECT_EQ(step[1].sequence, samples[2]);
  EXPECT_EQ(step[1].rows, kPage + 1);
  scheduler.commit(step);
  EXPECT_EQ(scheduler.counters().rows_recomputed, kPage);
  EXPECT_EQ(scheduler.counters().rows_generated, 4);
}

/// With several steps under way each takes its share of the sequences, and none goes without.
TEST(Scheduler, StepsAtOnceShareTheSequences) {
  for (const int64_t turns : {2, 4}) {
    KvCache cache = small_cache(100, false);
    Driver driver(cache, {.max_running_sequences = 64, .prefill_chunk_tokens = 200, .steps_at_once = turns});
    driver.add(10, 8, 20);
    driver.run();
    EXPECT_EQ(driver.most_decoding(), 8 / turns);
    EXPECT_EQ(driver.idle_steps(), 2 * (turns - 1)) << "until the first one ends, and after the last begins";
    EXPECT_EQ(driver.finished().size(), 8u);
  }
}

/// Few pages: sequences that wait for their tokens keep theirs.
TEST(Scheduler, StepsAtOncePreemptOthersThanEachOthers) {
  for (const int64_t turns : {2, 3}) {
    KvCache cache = small_cache(7, false);
    Driver driver(cache, {.max_running_sequences = 8, .prefill_chunk_tokens = 9, .steps_at_once = turns});
    for (int i = 0; i < 6; ++i) driver.add(5 + 7 * i, 1 + i % 3, 30);
    driver.run();
    EXPECT_GT(driver.counters().preemptions, 0) << turns;
    EXPECT_EQ(driver.finished().size(), 12u) << turns;
  }
}

/// A shared last page is copied by whoever writes first; the last holder writes in place.
TEST(Scheduler, CopyOnWriteTakesOnePageLessThanSamples) {
  KvCache cache = small_cache(10, false);
  Driver driver(cache, {.max_running_sequences = 4, .prefill_chunk_tokens = 64});
  driver.add(kPage + 4, 4, 3);
  driver.run();
  EXPECT_EQ(driver.counters().preemptions, 0);
  KvCache tight = small_cache(5, false);  // one full page shared by all, and four private ones
  Driver just_enough(tight, {.max_running_sequences = 4, .prefill_chunk_tokens = 64});
  just_enough.add(kPage + 4, 4, 3);
  just_enough.run();
  EXPECT_EQ(just_enough.counters().preemptions, 0);
  KvCache too_tight = small_cache(4, false);
  Driver preempting(too_tight, {.max_running_sequences = 4, .prefill_chunk_tokens = 64});
  preempting.add(kPage + 4, 4, 3);
  preempting.run();
  EXPECT_GT(preempting.counters().preemptions, 0);
}

/// Prompts enter only when their samples may run: pages for max_running_sequences at full length are enough.
TEST(Scheduler, NothingIsPreemptedWithRoomForTheRunningSequences) {
  KvCache cache = small_cache(8 * 2, false);
  Driver driver(cache, {.max_running_sequences = 8, .prefill_chunk_tokens = 64});
  for (int i = 0; i < 10; ++i) driver.add(12, 3, 20);  // two pages a sample
  driver.run();
  EXPECT_EQ(driver.counters().preemptions, 0);
  EXPECT_EQ(driver.counters().rows_recomputed, 0);
  EXPECT_EQ(driver.most_decoding(), 6);
  EXPECT_EQ(driver.finished().size(), 30u);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
