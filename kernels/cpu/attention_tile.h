#pragma once
// The product behind every attention kernel: c[r, 16i + n] (+)= sum_k a[r, k] b_i[k, n], for few rows and
// panels b_i of 16 columns. Every element of c is one ascending chain of fused multiply-adds over k, from
// zero or from its old value: its bits depend neither on the number of rows nor on how panels are grouped.

#include <algorithm>

#include "kernels/cpu/linear_vec.h"

namespace temper::cpu {

/// Rows that one tile keeps in registers at most.
template <class A>
inline constexpr int kProductRows = std::clamp(kAccumulatorRegisters / kParts<A>, 1, 8);

/// Element (r, k) of the left factor is data[r * row + k * step].
template <class A>
struct LeftFactor {
  const A* data;
  int64_t row, step;
};

/// Row k of panel i is the 16 elements from panels[i] + k * step. With `ahead`, the same rows of ahead[i] are
/// fetched meanwhile: the panels of the next block, which lie anywhere in memory.
template <class W>
struct RightPanels {
  const W* const* panels;
  int count;
  int64_t step;
  const W* const* ahead = nullptr;
};

enum class Start { zero, old_value };

/// Panels per tile of R rows: a power of two that the accumulator registers allow.
template <class A>
constexpr int product_panels(int R) {
  const int fit = kAccumulatorRegisters / (R * kParts<A>);
  return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

template <class A, class W, int R, int C, Start kStart, bool kAhead>
void product_tile(A* c, int64_t c_row, LeftFactor<A> a, const RightPanels<W>& b, int64_t depth) {
  constexpr int kWidth = Vec<A>::kWidth;
  Vec<A> acc[R][C * kParts<A>];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 32
    for (int i = 0; i < C * kParts<A>; ++i)
      acc[r][i] = kStart == Start::zero ? Vec<A>::zero() : Vec<A>::load(c + r * c_row + i * kWidth);
  const W *panel[C], *ahead[C];
  std::copy(b.panels, b.panels + C, panel);
  if constexpr (kAhead) std::copy(b.ahead, b.ahead + C, ahead);
  for (int64_t k = 0; k < depth; ++k) {
    Vec<A> right[C * kParts<A>];
    if constexpr (kAhead)
      for (int i = 0; i < C; ++i) __builtin_prefetch(ahead[i] + k * b.step);
#pragma GCC unroll 32
    for (int i = 0; i < C * kParts<A>; ++i)
      right[i] = Vec<A>::load(panel[i / kParts<A>] + k * b.step + i % kParts<A> * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec<A> left = Vec<A>::all(a.data[r * a.row + k * a.step]);
#pragma GCC unroll 32
      for (int i = 0; i < C * kParts<A>; ++i) acc[r][i] = fma(left, right[i], acc[r][i]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 32
    for (int i = 0; i < C * kParts<A>; ++i) acc[r][i].store(c + r * c_row + i * kWidth);
}

/// R rows against all panels: tiles of C panels, then of C/2, ...
template <class A, class W, int R, int C, Start kStart, bool kAhead>
void product_strip(A* c, int64_t c_row, LeftFactor<A> a, RightPanels<W> b, int64_t depth) {
  for (; b.count >= C; b.count -= C) {
    product_tile<A, W, R, C, kStart, kAhead>(c, c_row, a, b, depth);
    b.panels += C;
    if constexpr (kAhead) b.ahead += C;
    c += C * kLanes;
  }
  if constexpr (C > 1) {
    if (b.count > 0) product_strip<A, W, R, C / 2, kStart, kAhead>(c, c_row, a, b, depth);
  }
}

template <class A, class W, Start kStart, bool kAhead = false, int R = kProductRows<A>>
void product_rows(A* c, int64_t c_row, int rows, LeftFactor<A> a, const RightPanels<W>& b, int64_t depth) {
  if constexpr (R > 0) {
    if (rows == R) return product_strip<A, W, R, product_panels<A>(R), kStart, kAhead>(c, c_row, a, b, depth);
    product_rows<A, W, kStart, kAhead, R - 1>(c, c_row, rows, a, b, depth);
  }
}

/// Cuts `rows` into tiles as even as they can be: body(begin, rows of the tile).
template <class A, class Body>
void for_row_tiles(int64_t rows, Body&& body) {
  const int64_t tiles = (rows + kProductRows<A> - 1) / kProductRows<A>;
  int64_t begin = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t count = (rows - begin) / (tiles - t);
    body(begin, static_cast<int>(count));
    begin += count;
  }
}

/// c: rows of stride c_row, 16 * b.count columns.
template <Start kStart, class A, class W>
void product(A* c, int64_t c_row, int64_t rows, LeftFactor<A> a, const RightPanels<W>& b, int64_t depth) {
  for_row_tiles<A>(rows, [&](int64_t begin, int count) {
    product_rows<A, W, kStart>(c + begin * c_row, c_row, count, {a.data + begin * a.row, a.row, a.step}, b,
                               depth);
  });
}

}  // namespace temper::cpu
