#pragma once
// Products whose sum runs over rows (the backward ones): c[m,n] (+)= sum_d a(d,m) b[d,n], vectors along n.
// The left operand is packed once in tiles and shared by all threads. Of the right one a block is packed for
// L2; where few rows use it, it is read once, in order, as it is stored, and the sums wait in the caches. The
// sum is cut in fixed blocks of kDepth, each a chain of fused multiply-adds from zero, added to c in
// ascending order: the bits depend neither on threads nor on the number of rows.

#include "kernels/cpu/linear_outer_tile.h"

namespace temper::cpu {

/// c [rows, columns] and b [depth, columns] are dense rows of `columns` elements.
struct OuterShape {
  int64_t rows, columns, depth;
};

namespace outer {

inline constexpr int64_t kDepth = 256;
/// Elements of the right operand in a block, or of the sums of few tiles: they stay in L2.
inline constexpr int64_t kBlockElements = int64_t{512} * kDepth;
/// Columns of a block: as many as fit, as rows of b and c are read in order.
inline constexpr int64_t kLeastColumns = 512, kMostColumns = 8192;
/// Tiles of rows per block: the more, the fewer times the right operand is packed; at least so many where
/// there are threads to feed.
inline constexpr int64_t kMostTiles = 960 / kRows;
inline constexpr int64_t kLeastTiles = 96 / kRows;
/// Up to so many tiles of rows, packing a block of the right operand first takes more than it gives.
inline constexpr int64_t kFewTiles = 4;
/// Then so many rows of it are read side by side, each in order, while as many after them are fetched.
inline constexpr int64_t kRowsAtOnce = 20;
/// And at most so many columns are in a block: each thread has the same number of blocks, unless they would
/// be narrower than the least.
inline constexpr int64_t kFewColumns = 2048, kFewLeastColumns = 128;
/// Elements of the left operand that are packed at once, unless one block of kDepth is more.
inline constexpr int64_t kLeftElements = int64_t{4} << 20;

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

/// Columns of a block, in whole panels.
template <class A>
int64_t block_columns(const OuterShape& shape, int64_t tiles, int threads) {
  const auto pieces = [](int64_t columns, int64_t of) { return (columns + of - 1) / of; };
  const auto panels = [&](int64_t columns) { return pieces(columns, kColumns<A>) * kColumns<A>; };
  const int64_t all = panels(shape.columns);
  if (tiles > kFewTiles) {
    const int64_t fit = kBlockElements / std::min(kDepth, shape.depth) / kColumns<A> * kColumns<A>;
    return std::min(all, std::clamp(fit, kLeastColumns, kMostColumns));
  }
  const int64_t workers = std::max(1, threads), turns = pieces(shape.columns, workers * kFewColumns);
  return std::min(all, std::max(panels(pieces(shape.columns, workers * turns)), kFewLeastColumns));
}

/// Part of the product: tiles [begin, end) of rows against columns [column, column + columns) over one slab.
template <class A, class S>
struct Block {
  A* c;
  const PackedLeft<A>& left;
  const S* b;
  const OuterShape& slab;
  bool add;
  int64_t begin, end, column, columns;

  int64_t depth(int64_t d0) const { return std::min(kDepth, slab.depth - d0); }
  const S* right(int64_t d) const { return b + d * slab.columns + column; }
  /// The place of tile `t` from column `n` of the block on.
  Tile<A> tile(int64_t t, int64_t n, int64_t d0) const {
    const int64_t row = t * left.tile_rows;
    return {c + row * slab.columns + column + n, slab.columns, std::min(left.tile_rows, slab.rows - row),
            std::min<int64_t>(kColumns<A>, columns - n), add || d0 > 0};
  }
};

/// The part of the right operand that is packed next, fetched in shares by the last tiles before.
template <class S>
class NextRight {
 public:
  NextRight(const S* b, int64_t stride, int64_t columns, int64_t rows, int64_t tiles, int64_t depth)
      : b_(reinterpret_cast<const char*>(b)),
        stride_(stride * static_cast<int64_t>(sizeof(S))),
        width_(columns * static_cast<int64_t>(sizeof(S))),
        share_((rows * width_ + tiles - 1) / tiles),
        step_(share_ * 2 / depth) {}
  FetchRows share(int64_t tile) const {
    const int64_t begin = tile * share_;
    const char* row = b_ + begin / width_ * stride_;
    return {row + begin % width_, row + width_, step_, stride_ - width_, stride_};
  }

 private:
  const char* b_;
  int64_t stride_, width_, share_, step_;
};

/// One block of kDepth. The last kFetchingTiles tiles fetch what is packed after it, unless their depth is
/// too short for that.
template <class A, class S, int R>
void tiles_of_depth(const Block<A, S>& block, const A* panels, int64_t d0) {
  constexpr int64_t kFetchingTiles = 128, kFetchingDepth = 64;
  const int64_t depth = block.depth(d0), after = d0 + kDepth < block.slab.depth ? d0 + kDepth : 0;
  const int64_t begin = block.column + (after > 0 ? 0 : block.columns);
  const int64_t columns = depth < kFetchingDepth ? 0 : std::min(block.columns, block.slab.columns - begin);
  const int64_t all = (block.end - block.begin) * ((block.columns + kColumns<A> - 1) / kColumns<A>);
  const int64_t fetching = columns > 0 ? std::min(all, kFetchingTiles) : 0;
  const NextRight<S> next(block.b + after * block.slab.columns + begin, block.slab.columns, columns,
                          block.depth(after), std::max<int64_t>(1, fetching), depth);
  int64_t left = all;
  for (int64_t t = block.begin; t < block.end; ++t)
    for (int64_t n = 0; n < block.columns; n += kColumns<A>, --left) {
      const Tile<A> tile = block.tile(t, n, d0);
      const A* a = block.left.tile(d0, depth, t);
      if (left > fetching)
        compute_tile<A, R>(tile, a, panels + n * depth, depth, FetchNothing());
      else
        compute_tile<A, R>(tile, a, panels + n * depth, depth, next.share(fetching - left));
    }
}

template <class A, class S, int R>
void many_tiles(const Block<A, S>& block, A* workspace) {
  for (int64_t d0 = 0; d0 < block.slab.depth; d0 += kDepth) {
    pack_right(workspace, block.right(d0), block.slab.columns, block.columns, block.depth(d0));
    tiles_of_depth<A, S, R>(block, workspace, d0);
  }
}

/// Steps [d, d + steps) of the block of kDepth at d0, which has `depth`.
struct Steps {
  int64_t d0, depth, d, steps;
  bool first() const { return d == 0; }
  bool last() const { return d + steps == depth; }
};

/// A few steps for one tile and one panel of b. The sums wait in [R][kColumns]; the last steps add them to c,
/// at place(). kFromMemory: fetches the rows of b that come kRowsAtOnce later, and copies these where a copy
/// in the accumulate dtype serves the other tiles.
template <class A, int R, bool kFromMemory, class S, class Place>
[[gnu::always_inline]] inline void add_steps(const Steps& steps, A* sums, const A* a, const S* b,
                                             int64_t b_stride, A* copy, const Place& place) {
  Sums<A, R> acc;
  if (steps.first())
    clear_sums<A, R>(acc);
  else
    load_sums<A, R, false>(acc, sums, kColumns<A>);
  for (int64_t d = 0; d < steps.steps; ++d, a += R, b += b_stride) {
    Row<A> row;
    load_row<A>(row, b);
    if constexpr (kFromMemory) fetch<A, 0, 2>(b + kRowsAtOnce * b_stride);
    if constexpr (kFromMemory && !std::is_same_v<A, S>) store_row(copy + d * kColumns<A>, row);
    add_row<A, R>(acc, a, row);
  }
  if (steps.last())
    finish_tile<A, R>(place(), acc);
  else
    store_sums<A, R>(sums, kColumns<A>, acc);
}

/// A few steps for all tiles and panels of a block: sums [panel][tile][R][kColumns], so that none shares its
/// lowest 12 bits with those stored before it. `last_panel` [depth][kColumns]: the columns that fill no
/// panel.
template <class A, class S, int R>
void add_rows(const Block<A, S>& block, const Steps& steps, A* sums, A* copy, const A* last_panel) {
  constexpr int64_t kTile = R * kColumns<A>;
  const int64_t stride = block.slab.columns, whole = block.columns / kColumns<A> * kColumns<A>;
  const A* a0 = block.left.tile(steps.d0, steps.depth, block.begin) + steps.d * R;
  const S* b = block.right(steps.d0 + steps.d);
  int64_t n = 0, t = 0;
  const auto place = [&] { return block.tile(t, n, steps.d0); };
  for (; n < whole; n += kColumns<A>, b += kColumns<A>) {
    const A* a = a0;
    t = block.begin;
    add_steps<A, R, true>(steps, sums, a, b, stride, copy, place);
    for (++t, sums += kTile; t < block.end; ++t, sums += kTile) {
      a += steps.depth * R;
      if constexpr (std::is_same_v<A, S>)
        add_steps<A, R, false>(steps, sums, a, b, stride, copy, place);
      else
        add_steps<A, R, false>(steps, sums, a, copy, kColumns<A>, copy, place);
    }
  }
  if (n == block.columns) return;
  const A* a = a0;
  for (t = block.begin; t < block.end; ++t, sums += kTile, a += steps.depth * R)
    add_steps<A, R, false>(steps, sums, a, last_panel + steps.d * kColumns<A>, kColumns<A>, copy, place);
}

/// The same as many_tiles for few of them.
template <class A, class S, int R>
void few_tiles(const Block<A, S>& block, A* workspace) {
  constexpr int64_t kSums = kFewTiles * kRows * kFewColumns, kCopy = kRowsAtOnce * kColumns<A>;
  static_assert(kSums + kCopy + kDepth * kColumns<A> <= kBlockElements);
  A* copy = workspace + kSums;
  A* last_panel = copy + kCopy;
  const int64_t whole = block.columns / kColumns<A> * kColumns<A>;
  for (int64_t d0 = 0; d0 < block.slab.depth; d0 += kDepth) {
    const int64_t depth = block.depth(d0);
    if (whole < block.columns)
      pack_right(last_panel, block.right(d0) + whole, block.slab.columns, block.columns - whole, depth);
    for (int64_t d = 0; d < depth; d += kRowsAtOnce)
      add_rows<A, S, R>(block, {d0, depth, d, std::min(kRowsAtOnce, depth - d)}, workspace, copy, last_panel);
  }
}

template <class A, class S, int R = kRows>
void compute_block(const Block<A, S>& block, bool few, A* workspace) {
  if constexpr (R > 1)
    if (block.left.tile_rows < R) return compute_block<A, S, R - 1>(block, few, workspace);
  return few ? few_tiles<A, S, R>(block, workspace) : many_tiles<A, S, R>(block, workspace);
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
  ArenaScope scope(ctx.scratch);
  const ThreadBuffers<A> buffers(ctx, kBlockElements);
  const int64_t tiles = (shape.rows + kRows - 1) / kRows, tile_rows = (shape.rows + tiles - 1) / tiles;
  const int64_t most = std::max(kDepth, kLeftElements / shape.rows / kDepth * kDepth);
  const int64_t packed = tiles * tile_rows * std::min(most, shape.depth);
  const PackedLeft<A> left{static_cast<A*>(ctx.scratch.allocate(packed * static_cast<int64_t>(sizeof(A)))),
                           tiles, tile_rows};
  const int64_t width = block_columns<A>(shape, tiles, ctx.threads);
  const int64_t columns = (shape.columns + width - 1) / width;
  const int64_t rows = row_blocks(tiles, columns, ctx.threads);
  for (int64_t d = 0; d < shape.depth; d += most) {
    const OuterShape slab{shape.rows, shape.columns, std::min(most, shape.depth - d)};
    pack_slab(ctx, left, LeftOperand<SL>{a.data + d * a.depth_stride, a.depth_stride, a.row_stride},
              shape.rows, slab.depth);
    parallel_for(ctx.threads, rows * columns, [&](int64_t i) {
      const int64_t row = i % rows, column = i / rows * width;
      const int64_t begin = row * tiles / rows, end = (row + 1) * tiles / rows;
      const Block<A, SR> part{c,    left,         b + d * shape.columns,
                              slab, add || d > 0, begin,
                              end,  column,       std::min(width, shape.columns - column)};
      compute_block(part, tiles <= kFewTiles, buffers.mine());
    });
  }
}

}  // namespace temper::cpu
