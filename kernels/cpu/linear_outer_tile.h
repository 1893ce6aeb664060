#pragma once
// One tile of the products whose sum runs over rows: c[m,n] = sum_d a[d,m] b[d,n] for kRows rows and kColumns
// columns, whose sums stay in registers, and the packing of both operands.

#include "kernels/cpu/linear.h"

namespace temper::cpu {

/// Element (d, m) of the left operand is at data[d * depth_stride + m * row_stride].
template <class S>
struct LeftOperand {
  const S* data;
  int64_t depth_stride, row_stride;
};

namespace outer {

inline constexpr int kRows = kAccumulatorRegisters > 16 ? 12 : 6;  // of a tile
inline constexpr int kVectors = kAccumulatorRegisters > 8 ? 2 : 1;
template <class A>
inline constexpr int kColumns = kVectors * Vec<A>::kWidth;
/// Rows that packing fetches ahead: a prefetcher of the core starts anew with each.
inline constexpr int64_t kPackAhead = 2;

/// Where a tile of sums goes.
template <class A>
struct Tile {
  A* c;
  int64_t c_stride;
  int64_t rows, columns;  // that exist
  bool add;
};

template <class A, int R>
using Sums = Vec<A>[R][kVectors];
/// One row of a panel of b.
template <class A>
using Row = Vec<A>[kVectors];

template <class A, class S>
[[gnu::always_inline]] inline void load_row(Row<A>& row, const S* b) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) row[v] = Vec<A>::load(b + v * Vec<A>::kWidth);
}

template <class A>
[[gnu::always_inline]] inline void store_row(A* to, const Row<A>& row) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) row[v].store(to + v * Vec<A>::kWidth);
}

/// acc[r] += a[r] row: one step of the depth.
template <class A, int R>
[[gnu::always_inline]] inline void add_row(Sums<A, R>& acc, const A* a, const Row<A>& row) {
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    Vec<A> left = Vec<A>::all(a[r]);
    keep_in_register(left);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[r][v] = fma(left, row[v], acc[r][v]);
  }
}

template <class A, int R>
[[gnu::always_inline]] inline void clear_sums(Sums<A, R>& acc) {
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[r][v] = Vec<A>::zero();
}

/// acc = from (+ acc)
template <class A, int R, bool kAdd>
[[gnu::always_inline]] inline void load_sums(Sums<A, R>& acc, const A* from, int64_t stride) {
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const Vec<A> x = Vec<A>::load(from + r * stride + v * Vec<A>::kWidth);
      acc[r][v] = kAdd ? x + acc[r][v] : x;
    }
}

template <class A, int R>
[[gnu::always_inline]] inline void store_sums(A* to, int64_t stride, const Sums<A, R>& acc) {
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[r][v].store(to + r * stride + v * Vec<A>::kWidth);
}

/// c = (add: c +) sums
template <class A>
void write_row(A* c, const A* sums, int64_t columns, bool add) {
  for (int64_t i = 0; i < columns; ++i) c[i] = add ? c[i] + sums[i] : sums[i];
}

/// c = (add: c +) sums. All of c is loaded before any is stored: its rows are often a multiple of 4 KiB
/// apart, and a load waits for the stores before it that share its lowest 12 bits.
template <class A, int R>
[[gnu::always_inline]] inline void finish_tile(const Tile<A>& tile, Sums<A, R>& acc) {
  if (tile.rows == R && tile.columns == kColumns<A>) {
    if (tile.add) load_sums<A, R, true>(acc, tile.c, tile.c_stride);
    return store_sums<A, R>(tile.c, tile.c_stride, acc);
  }
  alignas(64) A part[R * kColumns<A>];  // cut off at the right or at the bottom
  store_sums<A, R>(part, kColumns<A>, acc);
  for (int64_t r = 0; r < tile.rows; ++r)
    write_row(tile.c + r * tile.c_stride, part + r * kColumns<A>, tile.columns, tile.add);
}

/// Fetches as much of a row as a panel has.
template <class A, int kWrite, int kLocality, class S>
[[gnu::always_inline]] inline void fetch(const S* row) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < kColumns<A>; i += 64 / static_cast<int64_t>(sizeof(S)))
    __builtin_prefetch(row + i, kWrite, kLocality);
}

/// Bytes of rows that are packed next, fetched to L2 a line or less at a time.
struct FetchRows {
  const char* at = nullptr;
  const char* row_end = nullptr;
  int64_t step = 0, gap = 0, stride = 0;  // gap: from the end of a row to the next one
  void next() {
    __builtin_prefetch(at, 0, 2);
    at += step;
    if (at >= row_end) {
      at += gap;
      row_end += stride;
    }
  }
};

/// Fetches nothing, for tiles that nothing is packed after, and for those before the last.
struct FetchNothing {
  void next() {}
};

/// A tile of a [depth][R] against a panel of b [depth][kColumns], both packed. The right neighbour in c is
/// fetched meanwhile, one row a step, and then a piece of `later`, every other step.
template <class A, int R, class Later>
void compute_tile(const Tile<A>& tile, const A* a, const A* b, int64_t depth, Later later) {
  Sums<A, R> acc;
  clear_sums<A, R>(acc);
  const auto step = [&] {
    Row<A> row;
    load_row<A>(row, b);
    add_row<A, R>(acc, a, row);
    a += R;
    b += kColumns<A>;
  };
  const int64_t ahead = std::min<int64_t>(R, depth);
  const A* next = tile.c + kColumns<A>;
  for (int64_t d = 0; d < ahead; ++d, next += tile.c_stride) {
    fetch<A, 1, 3>(next);
    step();
  }
  int64_t d = ahead;
  for (; d + 2 <= depth; d += 2) {
    later.next();
    step();
    step();
  }
  if (d < depth) step();
  finish_tile<A, R>(tile, acc);
}

/// One tile of the left operand as [depth][tile_rows], absent rows as zeros. Memory is read in order.
template <class S, class A>
void pack_left(A* to, const LeftOperand<S>& a, int64_t present, int64_t tile_rows, int64_t depth) {
  if (a.row_stride == 1) {
    for (int64_t d = 0; d < depth; ++d) {
      const S* from = a.data + d * a.depth_stride;
      if (present == kRows)
        for (int64_t r = 0; r < kRows; ++r)
          to[d * kRows + r] = load(from[r]);  // of constant length: in vectors
      else
        for (int64_t r = 0; r < present; ++r) to[d * tile_rows + r] = load(from[r]);
    }
  } else {
    for (int64_t r = 0; r < present; ++r) {
      const S* from = a.data + r * a.row_stride;
      for (int64_t d = 0; d < depth; ++d) to[d * tile_rows + r] = load(from[d * a.depth_stride]);
    }
  }
  for (int64_t r = present; r < tile_rows; ++r)
    for (int64_t d = 0; d < depth; ++d) to[d * tile_rows + r] = A(0);
}

/// Packs columns x depth of the right operand in panels: [panel][depth][kColumns], absent columns as zeros.
/// Row by row, so that memory is read in order.
template <class S, class A>
void pack_right(A* to, const S* b, int64_t stride, int64_t columns, int64_t depth) {
  constexpr int64_t kPanel = kColumns<A>, kWidth = Vec<A>::kWidth;
  const int64_t whole = columns / kPanel * kPanel;
  for (int64_t d = 0; d < depth; ++d, b += stride) {
    A* line = to + d * kPanel;
    for (int64_t n = 0; n < whole; n += kPanel) {
      for (int64_t i = 0; i < kPanel; i += 64 / static_cast<int64_t>(sizeof(S)))
        __builtin_prefetch(b + kPackAhead * stride + n + i);
      for (int64_t v = 0; v < kPanel; v += kWidth) Vec<A>::load(b + n + v).store(line + n * depth + v);
    }
    if (whole < columns)
      for (int64_t i = 0; i < kPanel; ++i)
        line[whole * depth + i] = whole + i < columns ? load(b[whole + i]) : A(0);
  }
}

}  // namespace outer
}  // namespace temper::cpu
