#pragma once
// Products whose sum runs over rows (the backward ones): c[m,n] (+)= sum_d a(d,m) b[d,n], vectors along n.
// The left operand is packed once in tiles and shared by all threads. Of the right one a block is packed for
// L2; where few rows use it, it is read once, in order, as it is stored, and the sums wait in the caches. The
// sum is cut in fixed blocks of kDepth, each a chain of fused multiply-adds from zero, added to c in
// ascending order: the bits depend neither on threads nor on the number of rows.

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
inline constexpr int kColumns = kVectors * Vec<A>::kWidth;
inline constexpr int64_t kDepth = 256;
inline constexpr int64_t kBlockColumns = 512;
/// Tiles of rows per block: the more, the fewer times the right operand is packed; at least so many where
/// there are threads to feed.
inline constexpr int64_t kMostTiles = 960 / kRows;
inline constexpr int64_t kLeastTiles = 96 / kRows;
/// Up to so many tiles of rows, packing a block of the right operand first takes more than it gives.
inline constexpr int64_t kFewTiles = 4;
/// Then so many rows of it are read side by side, each in order, while as many after them are fetched.
inline constexpr int64_t kRowsAtOnce = 16;
/// Rows that packing fetches ahead: a prefetcher of the core starts anew with each.
inline constexpr int64_t kPackAhead = 2;
/// Elements of the left operand that are packed at once, unless one block of kDepth is more.
inline constexpr int64_t kLeftElements = int64_t{4} << 20;

template <class A>
struct Tile {
  A* c;
  int64_t c_stride;
  int64_t rows, columns;  // that exist
  bool add;
};

/// c = (add: c +) sums
template <class A>
void write_row(A* c, const A* sums, int64_t columns, bool add) {
  for (int64_t i = 0; i < columns; ++i) c[i] = add ? c[i] + sums[i] : sums[i];
}

/// acc[r] += a[r] b[0, kColumns): one step of the depth.
template <class A, int R, class S>
[[gnu::always_inline]] inline void add_row(Vec<A> (&acc)[R][kVectors], const A* a, const S* b) {
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

/// b is a packed panel: [depth][kColumns].
template <class A, int R>
void compute_tile(const Tile<A>& tile, const A* a, const A* b, int64_t depth) {
  constexpr int kWidth = Vec<A>::kWidth;
  Vec<A> acc[R][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) acc[r][v] = Vec<A>::zero();
  const bool whole = tile.rows == R && tile.columns == kColumns<A>;
  for (int64_t r = 0; r < tile.rows; ++r)  // this tile's right neighbour
    for (int64_t i = 0; i < kColumns<A>; i += 64 / static_cast<int64_t>(sizeof(A)))
      __builtin_prefetch(tile.c + r * tile.c_stride + kColumns<A> + i, 1);
  for (int64_t d = 0; d < depth; ++d, a += R, b += kColumns<A>) add_row<A, R>(acc, a, b);
  alignas(64) A part[R * kColumns<A>];
  A* out = whole ? tile.c : part;
  const int64_t stride = whole ? tile.c_stride : kColumns<A>;
  const bool add = whole && tile.add;
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      A* c = out + r * stride + v * kWidth;
      (add ? Vec<A>::load(c) + acc[r][v] : acc[r][v]).store(c);
    }
  if (whole) return;
  for (int64_t r = 0; r < tile.rows; ++r)  // cut off at the right or at the bottom
    write_row(tile.c + r * tile.c_stride, part + r * kColumns<A>, tile.columns, tile.add);
}

template <class A, int R = kRows>
void compute_tile_of(int64_t rows, const Tile<A>& tile, const A* a, const A* b, int64_t depth) {
  if constexpr (R > 0) {
    if (rows == R) return compute_tile<A, R>(tile, a, b, depth);
    compute_tile_of<A, R - 1>(rows, tile, a, b, depth);
  }
}

/// One tile of the left operand as [depth][tile_rows], absent rows as zeros.
template <class S, class A>
void pack_left(A* to, const LeftOperand<S>& a, int64_t present, int64_t tile_rows, int64_t depth) {
  for (int64_t d = 0; d < depth; ++d, to += tile_rows) {
    const S* from = a.data + d * a.depth_stride;
    if (present == kRows && a.row_stride == 1) {
      for (int64_t r = 0; r < kRows; ++r) to[r] = load(from[r]);  // of constant length: in vectors
      continue;
    }
    for (int64_t r = 0; r < present; ++r) to[r] = load(from[r * a.row_stride]);
    for (int64_t r = present; r < tile_rows; ++r) to[r] = A(0);
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

/// The left operand of a slab of depth: [block of kDepth][tile][depth][tile_rows].
template <class A>
struct PackedLeft {
  A* data;
  int64_t tiles, tile_rows;
  A* tile(int64_t d0, int64_t depth, int64_t index) const {
    return data + (tiles * d0 + index * depth) * tile_rows;
  }
};

template <class A, class S>
void pack_slab(Ctx& ctx, const PackedLeft<A>& left, const LeftOperand<S>& a, int64_t rows, int64_t slab) {
  parallel_for(ctx.threads, left.tiles, [&](int64_t t) {
    const int64_t row = t * left.tile_rows, present = std::min(left.tile_rows, rows - row);
    for (int64_t d0 = 0; d0 < slab; d0 += kDepth) {
      const int64_t depth = std::min(kDepth, slab - d0);
      const LeftOperand<S> part{a.data + d0 * a.depth_stride + row * a.row_stride, a.depth_stride,
                                a.row_stride};
      pack_left(left.tile(d0, depth, t), part, present, left.tile_rows, depth);
    }
  });
}

/// Blocks that `tiles` tiles of rows are cut in, where the columns are already cut in `column_blocks`.
inline int64_t row_blocks(int64_t tiles, int64_t column_blocks, int threads) {
  const int64_t few = (tiles + kMostTiles - 1) / kMostTiles, many = (tiles + kLeastTiles - 1) / kLeastTiles;
  return std::clamp(4 * (threads - 1) / column_blocks, few, many);
}

/// The place of tile `t` from `column` on; columns from `end` on are not its own.
template <class A>
Tile<A> tile_at(A* c, const PackedLeft<A>& left, const OuterShape& slab, int64_t t, int64_t column,
                int64_t end, bool add) {
  const int64_t row = t * left.tile_rows;
  return {c + row * slab.columns + column, slab.columns, std::min(left.tile_rows, slab.rows - row),
          std::min<int64_t>(kColumns<A>, end - column), add};
}

/// Tiles [begin, end) of rows against columns [column, column + kBlockColumns) over one slab.
template <class A, class S>
void block(A* c, const PackedLeft<A>& left, const S* b, const OuterShape& slab, bool add, int64_t begin,
           int64_t end, int64_t column, A* right) {
  const int64_t columns = std::min(kBlockColumns, slab.columns - column);
  for (int64_t d0 = 0; d0 < slab.depth; d0 += kDepth) {
    const int64_t depth = std::min(kDepth, slab.depth - d0);
    pack_right(right, b + d0 * slab.columns + column, slab.columns, columns, depth);
    for (int64_t t = begin; t < end; ++t)
      for (int64_t n = 0; n < columns; n += kColumns<A>)
        compute_tile_of<A>(left.tile_rows,
                           tile_at(c, left, slab, t, column + n, column + columns, add || d0 > 0),
                           left.tile(d0, depth, t), right + n * depth, depth);
  }
}

/// sums [R][kBlockColumns] += a few steps of the depth for one panel of the right operand. kFetch: the rows
/// that come after these.
template <class A, int R, bool kFetch, class S>
void add_tile(A* sums, const A* a, const S* b, int64_t b_stride, int64_t depth) {
  constexpr int kWidth = Vec<A>::kWidth;
  Vec<A> acc[R][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[r][v] = Vec<A>::load(sums + r * kBlockColumns + v * kWidth);
  for (int64_t d = 0; d < depth; ++d, a += R, b += b_stride) {
    if constexpr (kFetch)
      for (int64_t i = 0; i < kColumns<A>; i += 64 / static_cast<int64_t>(sizeof(S)))
        __builtin_prefetch(b + kRowsAtOnce * b_stride + i, 0, 2);
    add_row<A, R>(acc, a, b);
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[r][v].store(sums + r * kBlockColumns + v * kWidth);
}

template <class A, bool kFetch, class S, int R = kRows>
void add_tile_of(int64_t rows, A* sums, const A* a, const S* b, int64_t b_stride, int64_t depth) {
  if constexpr (R > 0) {
    if (rows == R) return add_tile<A, R, kFetch>(sums, a, b, b_stride, depth);
    add_tile_of<A, kFetch, S, R - 1>(rows, sums, a, b, b_stride, depth);
  }
}

/// Tiles [begin, end) of the left operand; where their sums wait: [tile][tile_rows][kBlockColumns].
template <class A>
struct FewTiles {
  const PackedLeft<A>* left;
  int64_t begin, end;
  A* sums;
};

/// Adds one block of depth to `columns` columns of the sums; b and the columns are whole panels.
template <class A, class S>
void add_block(const FewTiles<A>& few, int64_t column, int64_t columns, int64_t d0, int64_t depth, const S* b,
               int64_t b_stride) {
  const int64_t rows = few.left->tile_rows;
  for (int64_t d = 0; d < depth; d += kRowsAtOnce, b += kRowsAtOnce * b_stride)
    for (int64_t n = 0; n < columns; n += kColumns<A>)
      for (int64_t t = few.begin; t < few.end; ++t) {
        const auto add = t == few.begin ? add_tile_of<A, true, S> : add_tile_of<A, false, S>;
        add(rows, few.sums + (t - few.begin) * rows * kBlockColumns + column + n,
            few.left->tile(d0, depth, t) + d * rows, b + n, b_stride, std::min(kRowsAtOnce, depth - d));
      }
}

/// The same as `block` for few tiles.
template <class A, class S>
void low_block(A* c, const PackedLeft<A>& left, const S* b, const OuterShape& slab, bool add, int64_t begin,
               int64_t end, int64_t column, A* workspace) {
  const int64_t columns = std::min(kBlockColumns, slab.columns - column),
                whole = columns / kColumns<A> * kColumns<A>;
  const int64_t first = begin * left.tile_rows, rows = std::min(end * left.tile_rows, slab.rows) - first;
  const int64_t sums = (end - begin) * left.tile_rows * kBlockColumns;
  const FewTiles<A> few{&left, begin, end, workspace};
  A* last_panel = workspace + sums;
  for (int64_t d0 = 0; d0 < slab.depth; d0 += kDepth) {
    const int64_t depth = std::min(kDepth, slab.depth - d0);
    const S* right = b + d0 * slab.columns + column;
    std::fill_n(few.sums, sums, A(0));
    add_block(few, 0, whole, d0, depth, right, slab.columns);
    if (whole < columns) {
      pack_right(last_panel, right + whole, slab.columns, columns - whole, depth);
      add_block<A, A>(few, whole, kColumns<A>, d0, depth, last_panel, kColumns<A>);
    }
    for (int64_t r = 0; r < rows; ++r)
      write_row(c + (first + r) * slab.columns + column, few.sums + r * kBlockColumns, columns,
                add || d0 > 0);
  }
}

}  // namespace outer

/// c = (add: c +) the product. A depth of zero gives zeros (add: leaves c).
template <class A, class SL, class SR>
void outer_product(Ctx& ctx, A* c, const LeftOperand<SL>& a, const SR* b, const OuterShape& shape, bool add) {
  using namespace outer;
  if (shape.rows == 0 || shape.columns == 0) return;
  if (shape.depth == 0) {
    if (!add) std::fill(c, c + shape.rows * shape.columns, A(0));
    return;
  }
  ArenaScope scope(ctx.arena);
  const ThreadBuffers<A> buffers(ctx, outer::kBlockColumns * kDepth);
  const int64_t tiles = (shape.rows + kRows - 1) / kRows, tile_rows = (shape.rows + tiles - 1) / tiles;
  const int64_t most = std::max(kDepth, kLeftElements / shape.rows / kDepth * kDepth);
  const int64_t packed = tiles * tile_rows * std::min(most, shape.depth);
  const PackedLeft<A> left{static_cast<A*>(ctx.arena.allocate(packed * static_cast<int64_t>(sizeof(A)))),
                           tiles, tile_rows};
  const int64_t columns = (shape.columns + outer::kBlockColumns - 1) / outer::kBlockColumns;
  const int64_t rows = row_blocks(tiles, columns, ctx.threads);
  for (int64_t d = 0; d < shape.depth; d += most) {
    const OuterShape slab{shape.rows, shape.columns, std::min(most, shape.depth - d)};
    pack_slab(ctx, left, LeftOperand<SL>{a.data + d * a.depth_stride, a.depth_stride, a.row_stride},
              shape.rows, slab.depth);
    parallel_for(ctx.threads, rows * columns, [&](int64_t i) {
      const int64_t row = i % rows, column = i / rows * outer::kBlockColumns;
      const int64_t begin = row * tiles / rows, end = (row + 1) * tiles / rows;
      const auto work = end - begin <= kFewTiles ? low_block<A, SR> : block<A, SR>;
      work(c, left, b + d * shape.columns, slab, add || d > 0, begin, end, column, buffers.mine());
    });
  }
}

}  // namespace temper::cpu
