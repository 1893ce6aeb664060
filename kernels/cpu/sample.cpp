#include "kernels/cpu/sample.h"

#include <limits>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/head.h"

namespace temper::cpu {
namespace {

/// The best id so far. `score` is t for greedy rows, t + noise else; ids are visited in ascending order.
template <class A>
struct Draw {
  A score = -std::numeric_limits<A>::infinity();
  A t = 0;
  int64_t id = -1;
  void offer(const Draw& other) {
    if (other.score > score) *this = other;
  }
};

template <class A>
Draw<A> best_of(const A* scores, const A* t, int64_t count, int64_t first_id) {
  const A best = largest(scores, count);
  int64_t i = 0;
  while (i + 1 < count && scores[i] != best) ++i;
  return {best, t[i], first_id + i};
}

/// Best id of one chunk of a row without filters.
template <class A>
Draw<A> draw_chunk(const SampleRow& row, const A* t, int64_t count, int64_t first_id) {
  if (row.options.temperature == 0) return best_of(t, t, count, first_id);
  A scores[kVocabularyChunk];
  float noise[kNoiseGroup];
  for (int64_t i = 0; i < count; i += kNoiseGroup) {
    noise_group(noise, row.key, row.position, first_id + i);
    const int64_t group = std::min(kNoiseGroup, count - i);
    for (int64_t j = 0; j < group; ++j)
      scores[i + j] = static_cast<A>(static_cast<float>(t[i + j]) - noise[j]);
  }
  return best_of(scores, t, count, first_id);
}

/// An element of SampleChunks::best.
template <class A>
struct ChunkBest {
  ChunkStats<A> stats;
  A score, t, place;
};

/// SampleChunks as the loops read and write them.
template <class A>
struct ChunkTable {
  ChunkBest<A>* best;
  A *kept, *unedited;  // null: none
  int64_t chunks, n, slots;

  explicit ChunkTable(const SampleChunks& c)
      : best(reinterpret_cast<ChunkBest<A>*>(c.best.as<A>())),
        kept(c.kept.empty() ? nullptr : c.kept.as<A>()),
        unedited(c.unedited.empty() ? nullptr : c.unedited.as<A>()),
        chunks(c.best.dim(0)),
        n(c.best.dim(1)),
        slots(c.kept.empty() ? 0 : c.kept.dim(1)) {
    static_assert(sizeof(ChunkBest<A>) == 6 * sizeof(A));
  }
  ChunkBest<A>& at(int64_t chunk, int64_t row) const { return best[chunk * n + row]; }
  /// The logits of the row in a slot of `kept` or `unedited`.
  A* logits(A* of, int64_t chunk, int64_t slot) const {
    return of + (chunk * slots + slot) * kVocabularyChunk;
  }
  A logit(A* of, int64_t slot, int64_t id) const {
    return logits(of, id / kVocabularyChunk, slot)[id % kVocabularyChunk];
  }
};

/// Where the logits of each row are kept; -1: nowhere.
std::vector<int64_t> slots_of(std::span<const SampleRow> rows) {
  std::vector<int64_t> slots;
  int64_t next = 0;
  for (const SampleRow& row : rows) slots.push_back(row.options.filters() ? next++ : -1);
  return slots;
}

/// Best id among those that the filters of the row keep.
template <class A>
Draw<A> draw_filtered(const SampleRow& row, const ChunkTable<A>& in, int64_t slot, int64_t num_sampleable,
                      Candidate<A>* list) {
  for (int64_t v = 0; v < num_sampleable; ++v)
    list[v] = {in.logit(in.kept, slot, v), static_cast<int32_t>(v), 0.0};
  const int64_t count = filter(list, num_sampleable, row.options);
  Draw<A> best;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t id = static_cast<uint32_t>(list[i].id);
    const float noise = log_exponential_of(row.key.words(id / 4, row.position)[id % 4]);
    const A score = static_cast<A>(static_cast<float>(list[i].t) - noise);
    if (score > best.score || (score == best.score && list[i].id < best.id))
      best = {score, list[i].t, list[i].id};
  }
  if (in.unedited && best.id >= 0) best.t = in.logit(in.unedited, slot, best.id);
  return best;
}

/// The edits of ids [begin, end).
std::span<const LogitEdit> edits_between(std::span<const LogitEdit> edits, int64_t begin, int64_t end) {
  const auto before = [](const LogitEdit& edit, int64_t id) { return edit.id < id; };
  const auto first = std::lower_bound(edits.begin(), edits.end(), begin, before);
  return {first, std::lower_bound(first, edits.end(), end, before)};
}

/// A chunk of the logits z of a row, which it overwrites. `slot`: where the row is kept, or -1.
template <class A>
void visit(const ChunkTable<A>& out, int64_t chunk, int64_t r, int64_t slot, const SampleRow& row, A* z,
           int64_t first_id, int64_t ids, int64_t num_sampleable) {
  const A scale = inverse_temperature<A>(row.options.temperature);
  const std::span<const LogitEdit> edits = edits_between(row.edits, first_id, first_id + ids);
  A other[kVocabularyChunk];  // of each edit: t after it, and once the statistics are known t before it
  for (size_t e = 0; e < edits.size(); ++e)
    other[e] = edited_logit(z[edits[e].id - first_id], edits[e], row.options) * scale;
  temper_logits(z, ids, scale);
  ChunkBest<A>& best = out.at(chunk, r);
  best = {chunk_stats(z, ids), A(0), A(0), A(-1)};  // of the logits as they are: the log-prob knows no edits
  if (slot >= 0 && out.unedited) std::copy(z, z + ids, out.logits(out.unedited, chunk, slot));
  for (size_t e = 0; e < edits.size(); ++e) std::swap(z[edits[e].id - first_id], other[e]);
  if (slot >= 0) {
    std::copy(z, z + ids, out.logits(out.kept, chunk, slot));
  } else if (first_id < num_sampleable) {
    const Draw<A> d = draw_chunk(row, z, std::min(ids, num_sampleable - first_id), first_id);
    const std::span<const LogitEdit> its = edits_between(edits, d.id, d.id + 1);
    best.score = d.score, best.place = static_cast<A>(d.id - first_id);
    best.t = its.empty() ? d.t : other[its.data() - edits.data()];
  }
}

/// The end of `n` rows.
template <class A>
class SampleMerge {
 public:
  SampleMerge(const SampleChunks& chunks, const SampleRows& rows, int64_t num_sampleable)
      : in_(chunks), rows_(rows), num_sampleable_(num_sampleable), slots_(slots_of(rows.list)) {}

  /// tokens, logprob: [rows]
  void run(Ctx& ctx, int32_t* tokens, A* logprob) const {
    ArenaScope scope(ctx.scratch);
    std::vector<Draw<A>> best(static_cast<size_t>(in_.n));
    const ThreadBuffers<Candidate<A>> lists(ctx, in_.kept ? num_sampleable_ : 1);
    if (ctx.threads.count_only) return;
    for (int64_t r = 0; r < in_.n; ++r) {
      logprob[r] = merged(r).lse();
      for (int64_t c = 0; c < in_.chunks; ++c) best[static_cast<size_t>(r)].offer(draw(c, r));
    }
    parallel_for(ctx.threads, in_.n, [&](int64_t r) {
      const int64_t slot = slots_[static_cast<size_t>(r)];
      if (slot >= 0)
        best[static_cast<size_t>(r)] = draw_filtered(row(r), in_, slot, num_sampleable_, lists.mine());
    });
    for (int64_t r = 0; r < in_.n; ++r) {
      const Draw<A>& drawn = best[static_cast<size_t>(r)];
      if (drawn.id < 0) fail_nothing_left(r);
      tokens[r] = static_cast<int32_t>(drawn.id);
      logprob[r] = drawn.t - logprob[r];
    }
  }

 private:
  const SampleRow& row(int64_t r) const { return rows_.list[static_cast<size_t>(r)]; }
  Draw<A> draw(int64_t chunk, int64_t r) const {
    const ChunkBest<A>& b = in_.at(chunk, r);
    if (b.place < 0) return {};
    return {b.score, b.t, chunk * kVocabularyChunk + static_cast<int64_t>(b.place)};
  }

  std::string place(int64_t r) const {
    return fmt::format("row {} of the batch: prompt at data position {}, sample {}, response position {}",
                       rows_.first + r, row(r).key.data_position, row(r).key.sample, row(r).position);
  }

  [[noreturn]] void fail_nothing_left(int64_t r) const {
    fail(Exit::numerics,
         {.what = "no token is left to draw",
          .where = place(r),
          .why = fmt::format("{} logits were changed, {} ids may be drawn, and each is at -infinity",
                             row(r).edits.size(), num_sampleable_),
          .fix = "lower rollout.min_new_tokens or take ids out of rollout.stop_token_ids"});
  }

  /// The weighted sum is NaN where a logit is -inf, and infinite or NaN where one is +inf or NaN.
  ChunkStats<A> merged(int64_t r) const {
    ChunkStats<A> all = in_.at(0, r).stats;
    for (int64_t c = 1; c < in_.chunks; ++c) all = merge(all, in_.at(c, r).stats);
    if (!std::isfinite(all.max) || !std::isfinite(all.sum) || !std::isfinite(all.weighted))
      fail(Exit::numerics,
           {.what = "logits are not finite while sampling",
            .where = place(r),
            .why = fmt::format("largest {}, sum of exponentials {}, weighted sum {}", all.max, all.sum,
                               all.weighted),
            .fix = "check the weights for NaN and infinity (a diverged training step or a damaged model "
                   "folder)"});
    return all;
  }

  ChunkTable<A> in_;
  const SampleRows& rows_;
  int64_t num_sampleable_;
  std::vector<int64_t> slots_;  // [rows]
};

}  // namespace

void sample_chunks(Ctx& ctx, SampleChunks chunks, CTensor hidden, CTensor w, SampleRows rows,
                   int64_t num_sampleable, VocabularyShare share) {
  const std::vector<int64_t> slots = slots_of(rows.list);
  dispatch_storage(hidden.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    ArenaScope scope(ctx.scratch);
    const ChunkTable<A> out(chunks);
    const PackedRows<A> packed = pack_rows(ctx, hidden.as<S>(), hidden.dim(0), hidden.dim(1));
    for_each_window<S>(ctx, packed, w.as<S>(), w.dim(0), [&](const LogitsWindow<A>& window) {
      for (int64_t i = 0; i < window.rows; ++i) {
        const auto r = static_cast<size_t>(window.first_row + i);
        visit(out, window.first_id / kVocabularyChunk, window.first_row + i, slots[r], rows.list[r],
              window.z + i * kWindowStride, share.first + window.first_id, window.ids, num_sampleable);
      }
    });
  });
}

void sample_merge(Ctx& ctx, Tensor tokens, Tensor logprob, SampleChunks chunks, SampleRows rows,
                  int64_t num_sampleable) {
  dispatch_storage(logprob.dtype, [&](auto s) {
    using A = Accumulate<decltype(s)>;
    SampleMerge<A>(chunks, rows, num_sampleable).run(ctx, tokens.as<int32_t>(), logprob.as<A>());
  });
}

}  // namespace temper::cpu
