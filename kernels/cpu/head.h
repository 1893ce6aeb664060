#pragma once
// What log-prob and sampling share: the logits of blocks of rows against chunks of the vocabulary, and the
// statistics (max, sum, weighted sum) of a chunk and their merge, as NUMERICS.md defines them. Both ops call
// these very functions, so a sampled token's log-prob has the bits that scoring gives it later.

#include "kernels/cpu/linear.h"
#include "kernels/types.h"

namespace temper::cpu {

/// Elements from one row of a window of logits to the next: not a multiple of 4 KiB.
inline constexpr int64_t kWindowStride = kVocabularyChunk + kLanes;

/// 1/T, rounded once in the accumulate dtype; temperature 0 (greedy) reports log-probs at T = 1.
template <class A>
A inverse_temperature(double temperature) {
  return temperature == 0.0 ? A(1) : A(1) / static_cast<A>(temperature);
}

/// What is known of the tempered logits t of one chunk, or of several merged in ascending order.
template <class A>
struct ChunkStats {
  A max;       // m
  A sum;       // s = sum e^(t - m)
  A weighted;  // u = sum e^(t - m) t
  A lse() const { return max + std::log(sum); }
  A entropy() const { return lse() - weighted / sum; }
};

template <class A>
ChunkStats<A> merge(const ChunkStats<A>& a, const ChunkStats<A>& b) {
  const A m = std::max(a.max, b.max), fa = exponential(a.max - m), fb = exponential(b.max - m);
  return {m, std::fma(b.sum, fb, a.sum * fa), std::fma(b.weighted, fb, a.weighted * fa)};
}

/// z = z * scale, in place.
template <class A>
void temper_logits(A* z, int64_t count, A scale) {
  for (int64_t i = 0; i < count; ++i) z[i] *= scale;
}

/// The largest of count >= 1 values; a NaN wins only where it comes first.
template <class A>
A largest(const A* t, int64_t count) {
  A lanes[kLanes];
  std::fill(lanes, lanes + kLanes, t[0]);
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] = t[i + l] > lanes[l] ? t[i + l] : lanes[l];
  for (int64_t i = whole; i < count; ++i) lanes[0] = t[i] > lanes[0] ? t[i] : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

template <class A>
ChunkStats<A> chunk_stats(const A* t, int64_t count) {
  const A m = largest(t, count);
  A sum[kLanes] = {}, weighted[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int l = 0; l < kLanes; ++l) {
      const A e = exponential(t[i + l] - m);
      sum[l] += e;
      weighted[l] = std::fma(e, t[i + l], weighted[l]);
    }
  for (int64_t i = whole; i < count; ++i) {
    const A e = exponential(t[i] - m);
    sum[i - whole] += e;
    weighted[i - whole] = std::fma(e, t[i], weighted[i - whole]);
  }
  return {m, tree_sum(sum), tree_sum(weighted)};
}

/// Rows of one window of logits against ids [first_id, first_id + ids); row r of z starts at r *
/// kWindowStride.
template <class A>
struct LogitsWindow {
  int64_t first_row, rows, first_id, ids;
  A* z;
};

/// body(window) for all blocks of rows and all chunks of the vocabulary, in parallel, every window once.
template <class S, class Body>
void for_each_window(Ctx& ctx, const PackedRows<Accumulate<S>>& hidden, const S* w, int64_t V, Body&& body) {
  using A = Accumulate<S>;
  ArenaScope scope(ctx.scratch);
  const int64_t workspace = dot_workspace(hidden.features);
  const ThreadBuffers<A> buffers(ctx, workspace + kBlockRows * kWindowStride);
  const int64_t blocks = (hidden.count + kBlockRows - 1) / kBlockRows;
  const int64_t chunks = num_chunks(V);
  parallel_for(ctx.threads, blocks * chunks, [&](int64_t i) {
    const int64_t row = i % blocks * kBlockRows, id = i / blocks * kVocabularyChunk;
    const LogitsWindow<A> window{row, std::min(kBlockRows, hidden.count - row), id,
                                 std::min(kVocabularyChunk, V - id), buffers.mine() + workspace};
    dot_block<S>({window.z, kWindowStride}, hidden.rows(row, row + window.rows), w + id * hidden.features,
                 window.ids, buffers.mine());
    body(window);
  });
}

}  // namespace temper::cpu
