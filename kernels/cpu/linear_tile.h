#pragma once
// The inner tile of every forward product: R rows of x against C rows of w, both with the features
// contiguous. An output keeps its 16 lanes in registers and walks the features in ascending order; when the
// features are cut in blocks, the lanes are stored and taken up again, so the cut does not show in the bits.

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/linear_vec.h"

namespace temper::cpu {

/// Rows per tile in a large product, and the most rows that one tile can have (few rows go in one pass over
/// w).
template <class A>
inline constexpr int kTileRows = kAccumulatorRegisters > 16 ? (kParts<A> == 1 ? 6 : 4) : 3;
inline constexpr int kMaxTileRows = kAccumulatorRegisters > 16 ? 8 : 3;

/// Columns per tile of R rows: as many as the accumulator registers allow, of the divisors of kBlockColumns.
template <class A>
constexpr int tile_columns(int R) {
  const int most = std::clamp(kAccumulatorRegisters / (R * kParts<A>), 1, 8);
  return most == 7 ? 6 : most == 5 ? 4 : most;
}

/// One tile's operands over a range of features. x is padded with zeros to a multiple of kLanes, w need not
/// be.
template <class A, class W>
struct TileOperands {
  const A* x;
  int64_t x_stride;
  const W* w;
  int64_t w_stride;
  int64_t features;
};

/// Where a tile's result goes: lanes between blocks of features (R * C * kLanes values), sums after the last
/// one.
template <class A>
struct TileResult {
  A* out;
  int64_t out_stride;
  A* lanes;
  bool first, last;  // of the blocks of features
};

/// Up to eight rows by one pointer and the odd multiples of their stride, in a register each: otherwise every
/// address is an addition, and additions take turns with the multiply-adds.
template <class T>
class RowPointers {
 public:
  RowPointers(const T* data, int64_t stride, int rows)
      : at_(reinterpret_cast<const char*>(data)), one_(stride * static_cast<int64_t>(sizeof(T))) {
    if (rows > 3) __asm__("" : "+r"(three_));
    if (rows > 5) __asm__("" : "+r"(five_));
    if (rows > 7) __asm__("" : "+r"(seven_));
  }
  const T* operator[](int r) const {
    const int64_t offsets[] = {0, one_, 2 * one_, three_, 4 * one_, five_, 2 * three_, seven_};
    return reinterpret_cast<const T*>(at_ + offsets[r]);
  }
  void advance(int64_t elements) { at_ += elements * static_cast<int64_t>(sizeof(T)); }

 private:
  const char* at_;
  int64_t one_, three_ = 3 * one_, five_ = 5 * one_, seven_ = 7 * one_;
};

template <class A, int R, int C>
struct TileLanes {
  Vec<A> acc[R * C][kParts<A>];

  /// Features [k, k + kLanes) from where the pointers stand.
  template <class W>
  [[gnu::always_inline]] void step(const RowPointers<A>& x, const RowPointers<W>& w, int64_t k) {
    constexpr int kWidth = Vec<A>::kWidth;
#pragma GCC unroll 4
    for (int p = 0; p < kParts<A>; ++p) {
      Vec<A> column[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) column[c] = Vec<A>::load(w[c] + k + p * kWidth);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        Vec<A> row = Vec<A>::load(x[r] + k + p * kWidth);
        keep_in_register(row);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) acc[r * C + c][p] = fma(row, column[c], acc[r * C + c][p]);
      }
    }
  }
  void clear() {
#pragma GCC unroll 32
    for (int i = 0; i < R * C; ++i)
      for (int p = 0; p < kParts<A>; ++p) acc[i][p] = Vec<A>::zero();
  }
  void load(const A* lanes) {
#pragma GCC unroll 32
    for (int i = 0; i < R * C; ++i)
      for (int p = 0; p < kParts<A>; ++p) acc[i][p] = Vec<A>::load(lanes + i * kLanes + p * Vec<A>::kWidth);
  }
  void store(A* lanes) const {
#pragma GCC unroll 32
    for (int i = 0; i < R * C; ++i)
      for (int p = 0; p < kParts<A>; ++p) acc[i][p].store(lanes + i * kLanes + p * Vec<A>::kWidth);
  }
};

/// Groups of kLanes features between two fetches of a packed tile.
inline constexpr int64_t kFetchGroups = 2;

/// Bytes that are needed soon, fetched to L2 a little with the features that a tile takes.
struct Fetch {
  const char* at = nullptr;
  int64_t step = 0;
  void next() {
    __builtin_prefetch(at, 0, 2);
    at += step;
  }
};

/// Rows that are needed soon, cut in as many parts as there are tiles to fetch one each: a line now and then
/// costs nothing, a burst takes the fill buffers that the tile's own loads need.
class Ahead {
 public:
  Ahead() = default;
  template <class T>
  Ahead(const T* data, int64_t stride, int64_t features, int64_t rows, int64_t tiles)
      : row_(reinterpret_cast<const char*>(data)),
        stride_(stride * static_cast<int64_t>(sizeof(T))),
        parts_(std::max<int64_t>(1, tiles / std::max<int64_t>(1, rows))),
        step_(kFetchGroups * kLanes * static_cast<int64_t>(sizeof(T)) / parts_),
        part_bytes_(features * static_cast<int64_t>(sizeof(T)) / parts_) {}
  /// It serves tiles of `tile_stride` elements of rows that `passes` passes read as they are stored: `data`
  /// is what comes after all these rows. Each pass fetches its share of it, so that memory has work all the
  /// time.
  template <class T>
  static Ahead of_pass(const T* data, int64_t tile_stride, int64_t features, int64_t pass, int64_t passes) {
    Ahead ahead = none(data + features * pass / passes);
    ahead.stride_ = tile_stride * static_cast<int64_t>(sizeof(T));
    ahead.step_ = kLanes * static_cast<int64_t>(sizeof(T)) / passes;
    return ahead;
  }
  /// Nothing: a line that the tile has, again and again.
  template <class T>
  static Ahead none(const T* line) {
    Ahead ahead;
    ahead.row_ = reinterpret_cast<const char*>(line);
    return ahead;
  }
  Fetch of_tile() {
    const Fetch fetch{row_ + part_ * part_bytes_, step_};
    if (++part_ == parts_) part_ = 0, row_ += stride_;
    return fetch;
  }
  /// Goes on as if of_tile had been called `tiles` times.
  void skip(int64_t tiles) {
    row_ += tiles / parts_ * stride_;
    part_ = tiles % parts_;
  }

 private:
  const char* row_ = nullptr;
  int64_t stride_ = 0, parts_ = 1, step_ = 0, part_bytes_ = 0, part_ = 0;
};

/// w is packed and padded like x, or read where it is stored: in one pass, or in passes of kMaxTileRows rows.
enum class Weights { packed, once, passes };

/// Weights that are not packed come from memory once and in order. In one pass the next tile's rows are
/// fetched to L2 meanwhile; where many multiply-adds of four-byte weights stand between two loads, the near
/// fetch gives 24 instead of 19 GB/s. Else `w` (passes: for C rows at a time) and `x` say what is fetched
/// meanwhile.
template <class A, class W, int R, int C, Weights kWeights>
void dot_tile(const TileOperands<A, W>& in, const TileResult<A>& result, [[maybe_unused]] Fetch x = {},
              [[maybe_unused]] Fetch w = {}) {
  TileLanes<A, R, C> tile;
  if (result.first)
    tile.clear();
  else
    tile.load(result.lanes);
  constexpr bool kStream = kWeights != Weights::packed;
  const int64_t whole = kStream ? in.features / kLanes * kLanes : in.features;
  RowPointers<A> rows(in.x, in.x_stride, R);
  RowPointers<W> columns(in.w, in.w_stride, C);
  int64_t k = 0;
  if constexpr (!kStream)
    for (; k + kFetchGroups * kLanes <= whole; k += kFetchGroups * kLanes) {
      x.next();
      w.next();
#pragma GCC unroll 2
      for (int64_t group = 0; group < kFetchGroups; ++group) tile.step(rows, columns, group * kLanes);
      rows.advance(kFetchGroups * kLanes);
      columns.advance(kFetchGroups * kLanes);
    }
#pragma GCC unroll 2
  for (; k < whole; k += kLanes) {
    if constexpr (kWeights == Weights::once) {
      for (int c = 0; c < C; ++c) {
        __builtin_prefetch(in.w + (C + c) * in.w_stride + k, 0, 2);
        if constexpr (sizeof(W) == 4 && R > 2) __builtin_prefetch(in.w + c * in.w_stride + k + 128);
      }
    } else if constexpr (kWeights == Weights::passes) {
      for (int c = 0; c < C; ++c)
        __builtin_prefetch(w.at + c * in.w_stride * static_cast<int64_t>(sizeof(W)), 0, 2);
      w.at += w.step;
    }
    tile.step(rows, columns, 0);
    rows.advance(kLanes);
    columns.advance(kLanes);
  }
  if (kStream && whole < in.features) {
    W tail[C][kLanes] = {};
    for (int c = 0; c < C; ++c)
      std::copy(in.w + c * in.w_stride + whole, in.w + c * in.w_stride + in.features, tail[c]);
    tile.step(rows, RowPointers<W>(tail[0], kLanes, C), 0);
  }
  if (!result.last) {
    tile.store(result.lanes);
    return;
  }
  A sums[(R * C + kLanes - 1) / kLanes * kLanes];
  fold_lanes<A, R * C>(tile.acc, sums);
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) result.out[r * result.out_stride + c] = sums[r * C + c];
}

/// R rows against `columns` rows of w: tiles of tile_columns(R), then single columns.
template <class A, class W, int R, Weights kWeights>
void dot_strip(TileOperands<A, W> in, TileResult<A> result, int64_t columns, Ahead x, Ahead& w) {
  constexpr int C = tile_columns<A>(R);
  int64_t c = 0;
  for (; c + C <= columns; c += C) {
    dot_tile<A, W, R, C, kWeights>(in, result, x.of_tile(), w.of_tile());
    in.w += C * in.w_stride;
    result.out += C;
    result.lanes += R * C * kLanes;
  }
  for (; c < columns; ++c) {
    dot_tile<A, W, R, 1, kWeights>(in, result, x.of_tile(), w.of_tile());
    in.w += in.w_stride;
    result.out += 1;
    result.lanes += R * kLanes;
  }
}

template <class A, class W, Weights kWeights, int R = kMaxTileRows>
void dot_strip_of(int rows, const TileOperands<A, W>& in, const TileResult<A>& result, int64_t columns,
                  const Ahead& x, Ahead& w) {
  if constexpr (R > 0) {
    if (rows == R) return dot_strip<A, W, R, kWeights>(in, result, columns, x, w);
    dot_strip_of<A, W, kWeights, R - 1>(rows, in, result, columns, x, w);
  }
}

}  // namespace temper::cpu
