#pragma once
// The gated delta rule of one value head in one chunk, row by row: the arithmetic of NUMERICS.md, which
// forward, backward and generation share.

#include "kernels/cpu/row_loops.h"
#include "kernels/delta_types.h"

namespace temper::cpu {

/// The rows of a chunk that are there, of one value head: keys, writes and the logarithm of their decay since
/// the chunk began; each with the distance from one row to the next.
template <class S>
struct DeltaChunk {
  using A = Accumulate<S>;
  const S* keys;
  S* writes;
  A* decays;
  int64_t key_row, write_row, decay_row;
  int64_t key_dim, value_dim;

  const S* key(int64_t t) const { return keys + t * key_row; }
  S* write(int64_t t) const { return writes + t * write_row; }
  A& decay(int64_t t) const { return decays[t * decay_row]; }
  /// The chunk whose first row is row `t` of this one.
  DeltaChunk from(int64_t t) const {
    DeltaChunk later = *this;
    later.keys += t * key_row, later.writes += t * write_row, later.decays += t * decay_row;
    return later;
  }
};

template <class S, class A = Accumulate<S>>
inline A row_product(const S* a, const S* b, int64_t width) {
  return lane_sum<A>(0, width, [&](A sum, int64_t i) { return std::fma(load(a[i]), load(b[i]), sum); });
}

/// What rows read of a state: to storage rounded half away from zero.
inline float read_of_state(float x, bf16) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x8000u) & 0xffff0000u);
}
inline float read_of_state(float x, float) { return x; }
inline double read_of_state(double x, double) { return x; }
template <class S, class A = Accumulate<S>>
void read_state(A* read, const A* state, int64_t size) {
  for (int64_t i = 0; i < size; ++i) read[i] = read_of_state(state[i], S());
}

/// sum[d] = sum_i k[i] state[i, d], ascending from zero.
template <class S, class A = Accumulate<S>>
void state_product(A* sum, const S* k, const A* state, int64_t key_dim, int64_t value_dim) {
  std::fill_n(sum, value_dim, A(0));
  for (int64_t i = 0; i < key_dim; ++i) {
    const A x = load(k[i]);
#pragma omp simd
    for (int64_t d = 0; d < value_dim; ++d) sum[d] = std::fma(x, state[i * value_dim + d], sum[d]);
  }
}

/// What comes to row `t` of a chunk.
template <class S>
struct DeltaRow {
  using A = Accumulate<S>;
  const S *q, *v;
  A beta, g;
  S* o;
};

/// Row `t`: its decay and write go into the chunk, o out. `read`: read_state of the state before the chunk,
/// null in the first one. `work`: 2 dv elements.
template <class S, class A = Accumulate<S>>
void delta_row(const DeltaChunk<S>& c, int64_t t, const DeltaRow<S>& row, const A* read, A* work) {
  const int64_t dv = c.value_dim;
  A *const x = work, *const y = work + dv;
  c.decay(t) = t == 0 ? row.g : c.decay(t - 1) + row.g;
  const A decay = c.decay(t), since_start = exponential(decay);
  const S* const k = c.key(t);
  if (read) {
    state_product(x, k, read, c.key_dim, dv);
    state_product(y, row.q, read, c.key_dim, dv);
    for (int64_t d = 0; d < dv; ++d) {
      x[d] = std::fma(-since_start, x[d], load(row.v[d]));
      y[d] = since_start * y[d];
    }
  } else {
    for (int64_t d = 0; d < dv; ++d) x[d] = load(row.v[d]), y[d] = A(0);
  }
  const auto add = [&](A* sum, A factor, const S* u) {
#pragma omp simd
    for (int64_t d = 0; d < dv; ++d) sum[d] = std::fma(factor, load(u[d]), sum[d]);
  };
  const int64_t block = t / kDeltaBlock * kDeltaBlock;
  for (int64_t j = 0; j < t; ++j) {
    if (j == block)
      for (int64_t d = 0; d < dv; ++d) x[d] += A(0);
    const A a = exponential(decay - c.decay(j)) * row_product(k, c.key(j), c.key_dim);
    add(x, j < block ? load(store<S>(-a)) : -a, c.write(j));
  }
  if (block == t)
    for (int64_t d = 0; d < dv; ++d) x[d] += A(0);
  S* const u = c.write(t);
  for (int64_t d = 0; d < dv; ++d) u[d] = store<S>(row.beta * x[d]);
  for (int64_t j = 0; j <= t; ++j) {
    const A p = exponential(decay - c.decay(j)) * row_product(row.q, c.key(j), c.key_dim);
    add(y, load(store<S>(p)), c.write(j));
  }
  for (int64_t d = 0; d < dv; ++d) row.o[d] = store<S>(y[d] + A(0));
}

/// The state after a full chunk, from the one before it; null: zeros. `to` may be `from`.
template <class S, class A = Accumulate<S>>
void delta_state(const DeltaChunk<S>& c, A* to, const A* from, A* work) {
  const int64_t dv = c.value_dim, size = c.key_dim * dv;
  const A last = c.decay(kDeltaChunk - 1), decay = exponential(last);
  for (int64_t i = 0; i < size; ++i) to[i] = from ? decay * from[i] : A(0);
  for (int64_t j = 0; j < kDeltaChunk; ++j) {
    const A until_end = exponential(last - c.decay(j));
    for (int64_t d = 0; d < dv; ++d) work[d] = load(store<S>(until_end * load(c.write(j)[d])));
    for (int64_t i = 0; i < c.key_dim; ++i) {
      const A k = load(c.key(j)[i]);
#pragma omp simd
      for (int64_t d = 0; d < dv; ++d) to[i * dv + d] = std::fma(k, work[d], to[i * dv + d]);
    }
  }
}

}  // namespace temper::cpu
