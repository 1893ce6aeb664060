#include "kernels/cpu/sample.h"

#include <limits>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/head.h"

namespace temper::cpu {
namespace {

/// Rows sampled in one pass over w: bounds the memory of rows with filters, which keep all their logits.
constexpr int64_t kSampledRows = 64;

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

/// Best id among those that the filters of the row keep; t holds the whole row.
template <class A>
Draw<A> draw_filtered(const SampleRow& row, const A* t, int64_t num_sampleable, Candidate<A>* list) {
  for (int64_t v = 0; v < num_sampleable; ++v) list[v] = {t[v], static_cast<int32_t>(v), 0.0};
  const int64_t count = filter(list, num_sampleable, row.options);
  Draw<A> best;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t id = static_cast<uint32_t>(list[i].id);
    const float noise = log_exponential_of(row.key.words(id / 4, row.position)[id % 4]);
    const A score = static_cast<A>(static_cast<float>(list[i].t) - noise);
    if (score > best.score || (score == best.score && list[i].id < best.id))
      best = {score, list[i].t, list[i].id};
  }
  return best;
}

/// First edit of an id >= first_id.
inline int64_t first_edit(std::span<const LogitEdit> edits, int64_t first_id) {
  const auto before = [](const LogitEdit& edit, int64_t id) { return edit.id < id; };
  return std::lower_bound(edits.begin(), edits.end(), first_id, before) - edits.begin();
}

/// One pass over the vocabulary for at most kSampledRows rows.
template <class S>
class SamplePass {
 public:
  using A = Accumulate<S>;

  SamplePass(Ctx& ctx, std::span<const SampleRow> rows, int64_t V, int64_t num_sampleable)
      : ctx_(ctx),
        rows_(rows),
        V_(V),
        num_sampleable_(num_sampleable),
        n_(static_cast<int64_t>(rows.size())),
        chunks_((V + kVocabularyChunk - 1) / kVocabularyChunk) {
    stats_ = allocate<ChunkStats<A>>(chunks_ * n_);
    draws_ = allocate<Draw<A>>(chunks_ * n_);
    for (const SampleRow& row : rows_) {
      logits_.push_back(row.options.filters() ? allocate<A>(V) : nullptr);
      edited_.push_back(row.edits.empty() ? nullptr : allocate<A>(std::ssize(row.edits)));
    }
  }

  void run(const PackedRows<A>& hidden, const S* w) {
    for_each_window<S>(ctx_, hidden, w, V_, [&](const LogitsWindow<A>& window) {
      for (int64_t i = 0; i < window.rows; ++i)
        visit(window.first_row + i, window.z + i * kWindowStride, window.first_id, window.ids);
    });
  }

  /// tokens, logprob: [rows]; first_row only names rows in errors.
  void finish(int32_t* tokens, A* logprob, int64_t first_row) {
    std::vector<Draw<A>> best(static_cast<size_t>(n_));
    const ThreadBuffers<Candidate<A>> lists(ctx_, any_filter() ? num_sampleable_ : 1);
    if (ctx_.threads.count_only) return;
    for (int64_t r = 0; r < n_; ++r) {
      logprob[r] = merged(r, first_row + r).lse();
      for (int64_t c = 0; c < chunks_; ++c) best[static_cast<size_t>(r)].offer(draws_[c * n_ + r]);
    }
    parallel_for(ctx_.threads, n_, [&](int64_t r) {
      if (logits_[static_cast<size_t>(r)])
        best[static_cast<size_t>(r)] =
            draw_filtered(row(r), logits_[static_cast<size_t>(r)], num_sampleable_, lists.mine());
    });
    for (int64_t r = 0; r < n_; ++r) {
      if (best[static_cast<size_t>(r)].id < 0) fail_nothing_left(r, first_row + r);
      tokens[r] = static_cast<int32_t>(best[static_cast<size_t>(r)].id);
      logprob[r] = unedited(r, best[static_cast<size_t>(r)]) - logprob[r];
    }
  }

 private:
  template <class T>
  T* allocate(int64_t count) {
    return static_cast<T*>(ctx_.scratch.allocate(count * int64_t{sizeof(T)}));
  }
  const SampleRow& row(int64_t r) const { return rows_[static_cast<size_t>(r)]; }
  bool any_filter() const {
    return std::any_of(logits_.begin(), logits_.end(), [](const A* t) { return t != nullptr; });
  }

  void visit(int64_t r, A* z, int64_t first_id, int64_t ids) {
    const int64_t at = first_id / kVocabularyChunk * n_ + r;
    const int64_t sampleable = std::min(ids, num_sampleable_ - first_id);
    const A scale = inverse_temperature<A>(row(r).options.temperature);
    const std::span<const LogitEdit> edits = row(r).edits;
    const int64_t begin = first_edit(edits, first_id), end = first_edit(edits, first_id + ids);
    for (int64_t e = begin; e < end; ++e) {
      const LogitEdit& edit = edits[static_cast<size_t>(e)];
      edited_[static_cast<size_t>(r)][e] = edited_logit(z[edit.id - first_id], edit, row(r).options) * scale;
    }
    temper_logits(z, ids, scale);
    stats_[at] = chunk_stats(z, ids);  // of the logits as they are: the log-prob knows no edits
    for (int64_t e = begin; e < end; ++e)
      std::swap(z[edits[static_cast<size_t>(e)].id - first_id], edited_[static_cast<size_t>(r)][e]);
    draws_[at] = {};
    if (logits_[static_cast<size_t>(r)])
      std::copy(z, z + ids, logits_[static_cast<size_t>(r)] + first_id);
    else if (sampleable > 0)
      draws_[at] = draw_chunk(row(r), z, sampleable, first_id);
  }

  /// t of the drawn id before its edit; visit() left it in edited_.
  A unedited(int64_t r, const Draw<A>& draw) const {
    const std::span<const LogitEdit> edits = row(r).edits;
    const int64_t e = first_edit(edits, draw.id);
    return e < std::ssize(edits) && edits[static_cast<size_t>(e)].id == draw.id
               ? edited_[static_cast<size_t>(r)][e]
               : draw.t;
  }

  std::string place(int64_t r, int64_t named) const {
    return fmt::format("row {} of the batch: prompt at data position {}, sample {}, response position {}",
                       named, row(r).key.data_position, row(r).key.sample, row(r).position);
  }

  [[noreturn]] void fail_nothing_left(int64_t r, int64_t named) const {
    fail(Exit::numerics,
         {.what = "no token is left to draw",
          .where = place(r, named),
          .why = fmt::format("{} logits were changed, {} ids may be drawn, and each is at -infinity",
                             row(r).edits.size(), num_sampleable_),
          .fix = "lower rollout.min_new_tokens or take ids out of rollout.stop_token_ids"});
  }

  /// The weighted sum is NaN where a logit is -inf, and infinite or NaN where one is +inf or NaN.
  ChunkStats<A> merged(int64_t r, int64_t named) const {
    ChunkStats<A> all = stats_[r];
    for (int64_t c = 1; c < chunks_; ++c) all = merge(all, stats_[c * n_ + r]);
    if (!std::isfinite(all.max) || !std::isfinite(all.sum) || !std::isfinite(all.weighted))
      fail(Exit::numerics,
           {.what = "logits are not finite while sampling",
            .where = place(r, named),
            .why = fmt::format("largest {}, sum of exponentials {}, weighted sum {}", all.max, all.sum,
                               all.weighted),
            .fix = "check the weights for NaN and infinity (a diverged training step or a damaged model "
                   "folder)"});
    return all;
  }

  Ctx& ctx_;
  std::span<const SampleRow> rows_;
  int64_t V_, num_sampleable_, n_, chunks_;
  ChunkStats<A>* stats_;    // [chunks, rows]
  Draw<A>* draws_;          // [chunks, rows]
  std::vector<A*> logits_;  // [rows]: [V] for rows with filters, else null
  std::vector<A*> edited_;  // [rows]: [edits] the edited t, after their chunk was visited the t before it
};

}  // namespace

void sample(Ctx& ctx, Tensor tokens, Tensor logprob, CTensor hidden, CTensor w, SampleRows rows,
            int64_t num_sampleable) {
  const int64_t n = hidden.dim(0), D = hidden.dim(1), V = w.dim(0);
  dispatch_storage(hidden.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    for (int64_t r = 0; r < n; r += kSampledRows) {
      ArenaScope scope(ctx.scratch);
      const int64_t count = std::min(kSampledRows, n - r);
      const PackedRows<A> packed = pack_rows(ctx, hidden.as<S>() + r * D, count, D);
      SamplePass<S> pass(ctx, rows.list.subspan(static_cast<size_t>(r), static_cast<size_t>(count)), V,
                         num_sampleable);
      pass.run(packed, w.as<S>());
      pass.finish(tokens.as<int32_t>() + r, logprob.as<A>() + r, r);
    }
  });
}

}  // namespace temper::cpu
