#include "kernels/cpu/head.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/linear_outer.h"

namespace temper::cpu {
namespace {

constexpr int64_t kBackwardRows = 512;
constexpr int64_t kBackwardIds = 256;  // of one piece of parallel work

void check_targets(const int32_t* targets, int64_t n, int64_t V) {
  for (int64_t i = 0; i < n; ++i)
    CHECK(targets[i] >= 0 && targets[i] < V, "target {} of row {}, vocabulary {}", targets[i], i, V);
}

/// Statistics of rows by chunk: those of row i in chunk c are at [c * pitch + i].
template <class A>
struct StatsTable {
  ChunkStats<A>* at;
  int64_t pitch;
};

/// Statistics of every chunk of w, and t of the targets that are in [first, first + V).
template <class S>
void fill_stats(Ctx& ctx, const StatsTable<Accumulate<S>>& stats, Accumulate<S>* target_logit,
                const PackedRows<Accumulate<S>>& hidden, const S* w, int64_t V, const int32_t* targets,
                Accumulate<S> scale, int64_t first) {
  using A = Accumulate<S>;
  for_each_window<S>(ctx, hidden, w, V, [&](const LogitsWindow<A>& window) {
    for (int64_t i = 0; i < window.rows; ++i) {
      A* z = window.z + i * kWindowStride;
      const int64_t row = window.first_row + i, at = targets[row] - first - window.first_id;
      temper_logits(z, window.ids, scale);
      stats.at[window.first_id / kVocabularyChunk * stats.pitch + row] = chunk_stats(z, window.ids);
      if (at >= 0 && at < window.ids) target_logit[row] = z[at];
    }
  });
}

template <class A>
struct LogprobOut {
  A *logprob, *entropy, *lse;
};

/// Merges the chunks of `n` rows; logprob holds t of the target.
template <class A>
void merge_rows(Ctx& ctx, const LogprobOut<A>& out, const ChunkStats<A>* stats, int64_t chunks, int64_t n) {
  parallel_for(ctx.threads, n, [&](int64_t row) {
    ChunkStats<A> all = stats[row];
    for (int64_t c = 1; c < chunks; ++c) all = merge(all, stats[c * n + row]);
    out.lse[row] = all.lse();
    out.entropy[row] = all.entropy();
    out.logprob[row] -= out.lse[row];
  });
}

template <class A>
struct UpstreamRow {
  A dlogprob = 0, dentropy = 0, lse = 0, entropy = 0;
  int64_t row;     // in the whole batch
  int64_t target;  // among the ids of w, or none of them
};

/// z -> dL/dz of one row over ids [first_id, first_id + ids): (1/T) (a (1[v=y] - p) - b p (ln p + H)).
template <class A>
void logit_gradients(A* z, int64_t first_id, int64_t ids, const UpstreamRow<A>& up, A scale) {
  for (int64_t v = 0; v < ids; ++v) {
    const A log_p = z[v] * scale - up.lse;
    z[v] = -scale * exponential(log_p) * (up.dlogprob + up.dentropy * (log_p + up.entropy));
  }
  const int64_t at = up.target - first_id;
  if (at >= 0 && at < ids) z[at] += scale * up.dlogprob;
}

/// The rows of one batch of a backward pass, gathered.
template <class S>
struct BackwardBatch {
  std::vector<UpstreamRow<Accumulate<S>>> up;
  const S* hidden;                   // [rows, D]
  PackedRows<Accumulate<S>> packed;  // the same
  Accumulate<S>* dz;                 // [rows, kWindowStride]: one chunk of the vocabulary
  Accumulate<S>* dhidden;            // [rows, D]
};

template <class S>
void chunk_gradients(Ctx& ctx, const BackwardBatch<S>& batch, const S* w, int64_t first_id, int64_t ids,
                     Accumulate<S> scale) {
  using A = Accumulate<S>;
  ArenaScope scope(ctx.scratch);
  const ThreadBuffers<A> buffers(ctx, dot_workspace(batch.packed.features));
  const int64_t n = batch.packed.count;
  const int64_t blocks = (n + kBlockRows - 1) / kBlockRows, parts = (ids + kBackwardIds - 1) / kBackwardIds;
  parallel_for(ctx.threads, blocks * parts, [&](int64_t i) {
    const int64_t begin = i % blocks * kBlockRows, end = std::min(begin + kBlockRows, n);
    const int64_t id = i / blocks * kBackwardIds, count = std::min(kBackwardIds, ids - id);
    A* dz = batch.dz + begin * kWindowStride + id;
    dot_block<S>({dz, kWindowStride}, batch.packed.rows(begin, end), w + id * batch.packed.features, count,
                 buffers.mine());
    for (int64_t r = begin; r < end; ++r) {
      const UpstreamRow<A>& up = batch.up[static_cast<size_t>(r)];
      logit_gradients(dz + (r - begin) * kWindowStride, first_id + id, count, up, scale);
    }
  });
}

template <class S>
void backward_batch(Ctx& ctx, const BackwardBatch<S>& batch, Accumulate<S>* dw, const S* w, int64_t V,
                    Accumulate<S> scale) {
  using A = Accumulate<S>;
  const int64_t n = batch.packed.count, D = batch.packed.features;
  if (V == 0)
    parallel_for(ctx.threads, n, [&](int64_t row) { std::fill_n(batch.dhidden + row * D, D, A(0)); });
  const LeftOperand<A> by_id{batch.dz, 1, kWindowStride}, by_row{batch.dz, kWindowStride, 1};
  for (int64_t id = 0; id < V; id += kVocabularyChunk) {
    const int64_t ids = std::min(kVocabularyChunk, V - id);
    chunk_gradients(ctx, batch, w + id * D, id, ids, scale);
    outer_product(ctx, batch.dhidden, by_id, w + id * D, {n, D, ids}, id > 0);
    if (dw) outer_product(ctx, dw + id * D, by_row, batch.hidden, {ids, D, n}, true);
  }
}

/// Rows with a gradient (where memory is only counted: all), at most kBackwardRows of them from `row` on,
/// which moves behind them.
template <class A>
std::vector<UpstreamRow<A>> next_rows(bool count_only, int64_t& row, int64_t n, const A* dlogprob,
                                      const A* dentropy, const A* lse, const A* entropy,
                                      const int32_t* targets, int64_t first_id) {
  std::vector<UpstreamRow<A>> rows;
  for (; row < n && static_cast<int64_t>(rows.size()) < kBackwardRows; ++row)
    if (count_only)
      rows.push_back({.row = row, .target = 0});
    else if (dlogprob[row] != A(0) || dentropy[row] != A(0))
      rows.push_back({dlogprob[row], dentropy[row], lse[row], entropy[row], row, targets[row] - first_id});
  return rows;
}

template <class S>
S* gather_hidden(Ctx& ctx, const S* hidden, int64_t D, const std::vector<UpstreamRow<Accumulate<S>>>& up) {
  S* to = static_cast<S*>(ctx.scratch.allocate(static_cast<int64_t>(up.size()) * D * int64_t{sizeof(S)}));
  parallel_for(ctx.threads, std::ssize(up), [&](int64_t i) {
    const S* from = hidden + up[static_cast<size_t>(i)].row * D;
    std::copy(from, from + D, to + i * D);
  });
  return to;
}

}  // namespace

void logprob_forward(Ctx& ctx, Tensor logprob, Tensor entropy, Tensor lse, CTensor hidden, CTensor w,
                     CTensor targets, double temperature) {
  const int64_t n = hidden.dim(0), D = hidden.dim(1), V = w.dim(0);
  const int32_t* target = targets.as<int32_t>();
  check_targets(target, n, V);
  dispatch_storage(hidden.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const S* from = hidden.as<S>();
    for (int64_t r = 0; r < n; r += kPackedRows) {
      ArenaScope scope(ctx.scratch);
      const int64_t count = std::min(kPackedRows, n - r),
                    bytes = num_chunks(V) * count * int64_t{sizeof(ChunkStats<A>)};
      const PackedRows<A> packed = pack_rows(ctx, from + r * D, count, D);
      auto* stats = static_cast<ChunkStats<A>*>(ctx.scratch.allocate(bytes));
      const LogprobOut<A> out{logprob.as<A>() + r, entropy.as<A>() + r, lse.as<A>() + r};
      fill_stats<S>(ctx, {stats, count}, out.logprob, packed, w.as<S>(), V, target + r,
                    inverse_temperature<A>(temperature), 0);
      merge_rows(ctx, out, stats, num_chunks(V), count);
    }
  });
}

void logprob_stats(Ctx& ctx, Tensor stats, Tensor target_logit, CTensor hidden, CTensor w, CTensor targets,
                   double temperature, VocabularyShare share) {
  const int64_t n = hidden.dim(0), D = hidden.dim(1);
  const int32_t* target = targets.as<int32_t>();
  check_targets(target, n, share.ids);
  dispatch_storage(hidden.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    static_assert(sizeof(ChunkStats<A>) == 3 * sizeof(A));
    auto* all = reinterpret_cast<ChunkStats<A>*>(stats.as<A>());
    parallel_for(ctx.threads, n, [&](int64_t row) { target_logit.as<A>()[row] = A(-0.0); });
    for (int64_t r = 0; r < n; r += kPackedRows) {
      ArenaScope scope(ctx.scratch);
      const PackedRows<A> packed = pack_rows(ctx, hidden.as<S>() + r * D, std::min(kPackedRows, n - r), D);
      fill_stats<S>(ctx, {all + r, n}, target_logit.as<A>() + r, packed, w.as<S>(), w.dim(0), target + r,
                    inverse_temperature<A>(temperature), share.first);
    }
  });
}

void logprob_merge(Ctx& ctx, Tensor logprob, Tensor entropy, Tensor lse, CTensor stats,
                   CTensor target_logit) {
  const int64_t n = logprob.dim(0);
  dispatch_storage(lse.dtype, [&](auto s) {
    using A = Accumulate<decltype(s)>;
    const LogprobOut<A> out{logprob.as<A>(), entropy.as<A>(), lse.as<A>()};
    parallel_for(ctx.threads, n, [&](int64_t row) { out.logprob[row] = target_logit.as<A>()[row]; });
    merge_rows(ctx, out, reinterpret_cast<const ChunkStats<A>*>(stats.as<A>()), stats.dim(0), n);
  });
}

void logprob_backward(Ctx& ctx, Tensor dhidden, Tensor dw, CTensor dlogprob, CTensor dentropy, CTensor hidden,
                      CTensor w, CTensor targets, CTensor lse, CTensor entropy, double temperature,
                      VocabularyShare share) {
  const int64_t n = hidden.dim(0), D = hidden.dim(1), V = w.dim(0);
  const int32_t* target = targets.as<int32_t>();
  check_targets(target, n, share.ids);
  const int64_t row_bytes = D * dtype_size(dhidden.dtype);
  parallel_for(ctx.threads, n, [&](int64_t row) {
    std::memset(static_cast<char*>(dhidden.raw()) + row * row_bytes, 0, static_cast<size_t>(row_bytes));
  });
  dispatch_storage(hidden.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    for (int64_t row = 0; row < n;) {
      ArenaScope scope(ctx.scratch);
      auto up = next_rows(ctx.threads.count_only, row, n, dlogprob.as<A>(), dentropy.as<A>(), lse.as<A>(),
                          entropy.as<A>(), target, share.first);
      const int64_t count = static_cast<int64_t>(up.size());
      if (count == 0) continue;
      const S* gathered = gather_hidden(ctx, hidden.as<S>(), D, up);
      const PackedRows<A> packed = pack_rows(ctx, gathered, count, D);
      A* dz = static_cast<A*>(ctx.scratch.allocate(count * kWindowStride * int64_t{sizeof(A)}));
      A* sums = static_cast<A*>(ctx.scratch.allocate(count * D * int64_t{sizeof(A)}));
      const BackwardBatch<S> batch{std::move(up), gathered, packed, dz, sums};
      backward_batch(ctx, batch, dw.empty() ? nullptr : dw.as<A>(), w.as<S>(), V,
                     inverse_temperature<A>(temperature));
      const auto scatter = [&](auto* dx) {
        using T = std::remove_pointer_t<decltype(dx)>;
        parallel_for(ctx.threads, count, [&](int64_t i) {
          T* to = dx + batch.up[static_cast<size_t>(i)].row * D;
          for (int64_t d = 0; d < D; ++d) to[d] = store<T>(sums[i * D + d]);
        });
      };
      if (dhidden.dtype == hidden.dtype)
        scatter(dhidden.as<S>());
      else
        scatter(dhidden.as<A>());
    }
  });
}

}  // namespace temper::cpu
