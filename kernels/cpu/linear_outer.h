#pragma once
// Products whose sum runs over rows (the backward ones): c[m,n] (+)= sum_d a(d,m) b[d,n], vectors along n.
// Both operands are packed for L2; a panel of b stays in L1 while the tiles of a pass. The sum is cut in
// fixed blocks of kDepth, each a chain of fused multiply-adds from zero, added to c in ascending order: the
// bits do not depend on threads.

#include "kernels/cpu/linear.h"

namespace temper::cpu {

/// Element (d, m) of the left operand is at data[d * depth_stride + m * row_stride].
template <class S>
struct LeftOperand {
  const S* data;
  int64_t depth_stride, row_stride;
};

/// c [rows, columns] and b [depth, columns] are dense rows of `columns` elements.
struct OuterShape {
  int64_t rows, columns, depth;
};

namespace outer {

inline constexpr int kRows = kAccumulatorRegisters > 16 ? 12 : 6;  // of a tile
inline constexpr int kVectors = kAccumulatorRegisters > 8 ? 2 : 1;
template <class A>
inline constexpr int kColumns = kVectors* Vec<A>::kWidth;
inline constexpr int64_t kDepth = 256;
inline constexpr int64_t kBlockRows = 240;
inline constexpr int64_t kBlockColumns = 256;

template <class A, int R>
[[gnu::always_inline]] inline void tile_sums(A* sums, const A* a, const A* b, int64_t depth) {
  Vec<A> acc[R][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) acc[r][v] = Vec<A>::zero();
  for (int64_t d = 0; d < depth; ++d, a += R, b += kColumns<A>) {
    Vec<A> right[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) right[v] = Vec<A>::load(b + v * Vec<A>::kWidth);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      Vec<A> left = Vec<A>::all(a[r]);
      keep_in_register(left);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[r][v] = fma(left, right[v], acc[r][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) acc[r][v].store(sums + r * kColumns<A> + v * Vec<A>::kWidth);
}

template <class A>
struct Tile {
  A* c;
  int64_t c_stride;
  int64_t rows, columns;  // that exist
  bool add;
};

template <class A>
void write_tile(const Tile<A>& tile, const A* sums) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    A* c = tile.c + r * tile.c_stride;
    const A* s = sums + r * kColumns<A>;
    if (tile.columns == kColumns<A>) {
      for (int v = 0; v < kColumns<A>; v += Vec<A>::kWidth)
        (tile.add ? Vec<A>::load(c + v) + Vec<A>::load(s + v) : Vec<A>::load(s + v)).store(c + v);
    } else {
      for (int64_t i = 0; i < tile.columns; ++i) c[i] = tile.add ? c[i] + s[i] : s[i];
    }
  }
}

template <class A, int R = kRows>
void run_tile(int rows, const Tile<A>& tile, const A* a, const A* b, int64_t depth) {
  if constexpr (R > 0) {
    if (rows != R) return run_tile<A, R - 1>(rows, tile, a, b, depth);
    alignas(64) A sums[R * kColumns<A>];
    tile_sums<A, R>(sums, a, b, depth);
    write_tile(tile, sums);
  }
}

/// Packs rows x depth of the left operand in tiles: [tile][depth][tile_rows], absent rows as zeros.
template <class S, class A>
void pack_left(A* to, const LeftOperand<S>& a, int64_t rows, int64_t tile_rows, int64_t depth) {
  for (int64_t begin = 0; begin < rows; begin += tile_rows, to += depth * tile_rows) {
    const int64_t present = std::min(tile_rows, rows - begin);
    const S* from = a.data + begin * a.row_stride;
    for (int64_t d = 0; d < depth; ++d) {
      A* line = to + d * tile_rows;
      for (int64_t r = 0; r < present; ++r) line[r] = load(from[d * a.depth_stride + r * a.row_stride]);
      for (int64_t r = present; r < tile_rows; ++r) line[r] = A(0);
    }
  }
}

/// Packs columns x depth of the right operand in panels: [panel][depth][kColumns], absent columns as zeros.
/// Row by row, so that memory is read in order.
template <class S, class A>
void pack_right(A* to, const S* b, int64_t stride, int64_t columns, int64_t depth) {
  constexpr int64_t kPanel = kColumns<A>, kWidth = Vec<A>::kWidth;
  const int64_t whole = columns / kPanel * kPanel;
  for (int64_t d = 0; d < depth; ++d, b += stride) {
    A* line = to + d * kPanel;
    for (int64_t n = 0; n < whole; n += kPanel)
      for (int64_t v = 0; v < kPanel; v += kWidth) Vec<A>::load(b + n + v).store(line + n * depth + v);
    if (whole < columns)
      for (int64_t i = 0; i < kPanel; ++i)
        line[whole * depth + i] = whole + i < columns ? load(b[whole + i]) : A(0);
  }
}

/// Rows of c [row_begin, row_end) and columns [column_begin, column_end), at most kBlockRows x kBlockColumns.
template <class A, class SL, class SR>
void block(A* c, const LeftOperand<SL>& a, const SR* b, const OuterShape& shape, bool add, int64_t row_begin,
           int64_t row_end, int64_t column_begin, int64_t column_end, A* workspace) {
  const int64_t rows = row_end - row_begin;
  const int64_t tiles = (rows + kRows - 1) / kRows, tile_rows = (rows + tiles - 1) / tiles;
  A* left = workspace;
  A* right = workspace + (kBlockRows + kRows) * kDepth;
  for (int64_t d0 = 0; d0 < shape.depth; d0 += kDepth) {
    const int64_t depth = std::min(kDepth, shape.depth - d0);
    const LeftOperand<SL> part{a.data + d0 * a.depth_stride + row_begin * a.row_stride, a.depth_stride,
                               a.row_stride};
    pack_left(left, part, rows, tile_rows, depth);
    pack_right(right, b + d0 * shape.columns + column_begin, shape.columns, column_end - column_begin, depth);
    for (int64_t n = column_begin; n < column_end; n += kColumns<A>) {
      const int64_t columns = std::min<int64_t>(kColumns<A>, column_end - n);
      for (int64_t r = 0; r < rows; r += tile_rows) {
        const Tile<A> tile{c + (row_begin + r) * shape.columns + n, shape.columns,
                           std::min(tile_rows, rows - r), columns, add || d0 > 0};
        run_tile<A>(static_cast<int>(tile_rows), tile, left + r * depth, right + (n - column_begin) * depth,
                    depth);
      }
    }
  }
}

}  // namespace outer

/// c = (add: c +) the product. A depth of zero gives zeros (add: leaves c).
template <class A, class SL, class SR>
void outer_product(Ctx& ctx, A* c, const LeftOperand<SL>& a, const SR* b, const OuterShape& shape, bool add) {
  if (shape.rows == 0 || shape.columns == 0) return;
  if (shape.depth == 0) {
    if (!add) std::fill(c, c + shape.rows * shape.columns, A(0));
    return;
  }
  ArenaScope scope(ctx.arena);
  const ThreadBuffers<A> buffers(ctx,
                                 (outer::kBlockRows + outer::kRows + outer::kBlockColumns) * outer::kDepth);
  const int64_t row_blocks = (shape.rows + outer::kBlockRows - 1) / outer::kBlockRows;
  const int64_t block_rows = (shape.rows + row_blocks - 1) / row_blocks;
  const int64_t column_blocks = (shape.columns + outer::kBlockColumns - 1) / outer::kBlockColumns;
  parallel_for(ctx.threads, row_blocks * column_blocks, [&](int64_t i) {
    const int64_t row = i % row_blocks * block_rows, column = i / row_blocks * outer::kBlockColumns;
    if (row >= shape.rows) return;
    outer::block(c, a, b, shape, add, row, std::min(row + block_rows, shape.rows), column,
                 std::min(column + outer::kBlockColumns, shape.columns), buffers.mine());
  });
}

}  // namespace temper::cpu
