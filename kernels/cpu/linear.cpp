#include "kernels/cpu/linear.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/linear_outer.h"
#include "src/core/check.h"

namespace temper::cpu {
namespace {

/// Rows of the next tile of `left` rows: the last two are as even as they can be, so that none is a thin
/// rest.
int64_t next_rows(int64_t left, int64_t most) {
  return left <= most ? left : std::min<int64_t>(most, (left + 1) / 2);
}

/// Size of the parts, all alike and of whole lanes, that `features` are cut into, none above `most`.
int64_t even_part(int64_t features, int64_t most) {
  const int64_t parts = (features + most - 1) / most;
  return ((features + parts - 1) / parts + kLanes - 1) / kLanes * kLanes;
}

/// A part of the columns of w, from `first` on, as dot_block takes it at once.
template <class S>
struct Columns {
  const S* w;
  int64_t first, count;
};

/// Few rows against w as it is stored, in one pass over it or in several.
template <class S, Weights kWeights>
void dot_streamed(const BlockOutput<Accumulate<S>>& out, const PackedRows<Accumulate<S>>& x,
                  const Columns<S>& part) {
  using A = Accumulate<S>;
  for (int64_t row = 0; row < x.count;) {
    const int64_t rows = next_rows(x.count - row, kMaxTileRows);
    Ahead w;
    if constexpr (kWeights == Weights::passes) {
      const int64_t tile = tile_columns<A>(static_cast<int>(rows)) * x.features;
      const int64_t passes = (x.count + kMaxTileRows - 1) / kMaxTileRows;
      w = Ahead::of_pass(part.w + part.count * x.features, tile, x.features, row * passes / x.count, passes);
    }
    A* sums = out.strip(row) + part.first;
    dot_strip_of<A, S, kWeights>(static_cast<int>(rows),
                                 {x.data + row * x.stride, x.stride, part.w, x.features, x.features},
                                 {sums, out.stride, nullptr, true, true}, part.count, Ahead(), w);
    if (out.taken) out.taken(sums, row, rows, part.first, part.count);
    row += rows;
  }
}

/// Columns of w in the accumulate dtype, some or all of their features.
template <class S>
struct Panel {
  const Accumulate<S>* data;
  int64_t stride;
};

/// w itself where tiles can use it, unless enough rows pass by to pay for a copy, whose rows never share
/// their sets.
template <class S>
Panel<S> make_panel(Accumulate<S>* copy, const Columns<S>& part, int64_t stride, int64_t features,
                    int64_t rows) {
  constexpr int64_t kRowsThatPay = 300;
  if constexpr (std::is_same_v<S, Accumulate<S>>)
    if (rows < kRowsThatPay && features % kLanes == 0 && whole_lines(part.w, stride)) return {part.w, stride};
  const int64_t copy_stride = packed_stride(features);
  for (int64_t c = 0; c < part.count; ++c) pack_row(copy + c * copy_stride, part.w + c * stride, features);
  return {copy, copy_stride};
}

/// What comes after a panel: x after its last strip; w, as many rows as this panel has columns.
template <class S>
struct Next {
  const Accumulate<S>* x;
  const S* w;
  int64_t w_stride;
};

/// All rows of x against a panel, strip by strip: a strip walks the blocks of features with its lanes close
/// by. The next panel's rows of w are fetched while the last kBlockRows rows are at work.
template <class S>
void dot_panel(const BlockOutput<Accumulate<S>>& out, const TileResult<Accumulate<S>>& all,
               const PackedRows<Accumulate<S>>& x, const Panel<S>& panel, const Columns<S>& part,
               const Next<S>& after) {
  using A = Accumulate<S>;
  const int64_t block = even_part(x.features, kBlockFeatures);
  const int64_t last_rows = std::min(x.count, kBlockRows);
  const int64_t last_strips = (last_rows + kTileRows<A> - 1) / kTileRows<A>;
  TileResult<A> result = all;
  int64_t fetched = 0;  // tiles that fetched their share of after.w, in each block
  for (int64_t row = 0; row < x.count;) {
    const int64_t rows = next_rows(x.count - row, kTileRows<A>);
    const int64_t tiles = part.count / tile_columns<A>(static_cast<int>(rows));
    const A* strip = x.data + row * x.stride;
    const A* next = row + rows < x.count ? strip + rows * x.stride : after.x;
    const bool fetch = row + rows > x.count - last_rows;
    result.out = out.strip(row) + part.first;
    for (int64_t k = 0; k < x.features; k += block) {
      const int64_t features = std::min(block, x.features - k);
      result.first = all.first && k == 0;
      result.last = all.last && k + block >= x.features;
      Ahead w = Ahead::none(strip);
      if (fetch) {
        w = Ahead(after.w + k, after.w_stride, features, part.count, last_strips * tiles);
        w.skip(fetched);
      }
      dot_strip_of<A, A, Weights::packed>(
          static_cast<int>(rows),
          {strip + k, x.stride, panel.data + k, panel.stride, (features + kLanes - 1) / kLanes * kLanes},
          result, part.count, Ahead(next + k, x.stride, features, rows, tiles), w);
    }
    if (all.last && out.taken) out.taken(result.out, row, rows, part.first, part.count);
    if (fetch) fetched += tiles;
    if (!(all.first && all.last)) result.lanes += rows * part.count * kLanes;
    row += rows;
  }
}

/// The part has at most kBlockColumns columns.
template <class S>
void dot_packed(const BlockOutput<Accumulate<S>>& out, const PackedRows<Accumulate<S>>& x,
                const Columns<S>& part, Accumulate<S>* workspace) {
  using A = Accumulate<S>;
  const bool many_rows = x.count > kBlockRows;
  CHECK(!many_rows || x.features <= kPanelFeatures, "{} rows of {} features, lanes for {} rows", x.count,
        x.features, kBlockRows);
  const int64_t panel_features = even_part(x.features, many_rows ? kPanelFeatures : kBlockFeatures);
  A* lanes = workspace + kBlockColumns * packed_stride(std::min(x.features, kPanelFeatures));
  for (int64_t k = 0; k < x.features; k += panel_features) {
    const int64_t features = std::min(panel_features, x.features - k);
    const bool first = k == 0, last = k + panel_features >= x.features;
    const Columns<S> columns{part.w + k, part.first, part.count};
    const Panel<S> panel = make_panel(workspace, columns, x.features, features, x.count);
    dot_panel<S>(out, {nullptr, out.stride, lanes, first, last}, {x.data + k, x.stride, x.count, features},
                 panel, columns,
                 {last ? x.data : x.data + k + panel_features,
                  last ? part.w + part.count * x.features : columns.w + panel_features, x.features});
  }
}

/// y = round(sums + bias)
template <class S, class Y>
void finish_row(Y* y, const Accumulate<S>* sums, const S* bias, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = store<Y>(bias ? sums[i] + load(bias[i]) : sums[i]);
}

template <class A>
int64_t whole_tiles(int64_t rows) {
  return (rows + kTileRows<A> - 1) / kTileRows<A> * kTileRows<A>;
}

/// Rows in each piece of work: all, so that a panel is packed once, but for threads that need more pieces to
/// share, and for panels that cannot have all features.
template <class A>
int64_t rows_per_piece(int threads, int64_t rows, int64_t features, int64_t column_blocks) {
  constexpr int64_t kPiecesPerThread = 8;
  const int64_t most = (rows + kBlockRows - 1) / kBlockRows;
  const int64_t wanted = threads > 1 ? (kPiecesPerThread * threads + column_blocks - 1) / column_blocks : 1;
  const int64_t pieces = features > kPanelFeatures ? most : std::min(wanted, most);
  return whole_tiles<A>((rows + pieces - 1) / pieces);
}

/// Rows that are packed at once, as even as they can be.
template <class A>
int64_t rows_per_pass(int64_t rows, int64_t features) {
  const int64_t most = std::clamp(kPackedElements / features, kBlockRows, kPackedRows);
  const int64_t passes = (rows + most - 1) / most;
  return whole_tiles<A>((rows + passes - 1) / passes);
}

/// One pass.
template <class S, class Y>
void forward_rows(Ctx& ctx, Y* y, const S* x, const S* w, const S* bias, int64_t T, int64_t N, int64_t K) {
  using A = Accumulate<S>;
  ArenaScope scope(ctx.scratch);
  const PackedRows<A> packed = pack_rows(ctx, x, T, K);
  const int64_t workspace = dot_workspace(K);
  const ThreadBuffers<A> buffers(ctx, workspace + kStripSums);
  const int64_t column_blocks = (N + kBlockColumns - 1) / kBlockColumns;
  const int64_t piece_rows = rows_per_piece<A>(ctx.threads, T, K, column_blocks);
  const int64_t row_blocks = (T + piece_rows - 1) / piece_rows;
  parallel_for(ctx.threads, row_blocks * column_blocks, [&](int64_t i) {
    const int64_t r0 = i % row_blocks * piece_rows, r1 = std::min(r0 + piece_rows, T);
    const int64_t c0 = i / row_blocks * kBlockColumns, columns = std::min(kBlockColumns, N - c0);
    const PackedRows<A> rows = packed.rows(r0, r1);
    if constexpr (std::is_same_v<Y, A>)
      if (!bias) return dot_block<S>({y + r0 * N + c0, N}, rows, w + c0 * K, columns, buffers.mine());
    BlockOutput<A> out{buffers.mine() + workspace, kBlockColumns};
    out.taken = [&](const A* sums, int64_t row, int64_t count_rows, int64_t column, int64_t count) {
      for (int64_t r = 0; r < count_rows; ++r)
        finish_row<S>(y + (r0 + row + r) * N + c0 + column, sums + r * kBlockColumns,
                      bias ? bias + c0 + column : nullptr, count);
    };
    dot_block<S>(out, rows, w + c0 * K, columns, buffers.mine());
  });
}

template <class S, class Y>
void forward(Ctx& ctx, Y* y, const CTensor& x, const CTensor& w, const CTensor& bias) {
  const int64_t T = x.dim(0), K = x.dim(1), N = w.dim(0);
  const S* xs = x.as<S>();
  const S* ws = w.as<S>();
  const S* bs = bias.empty() ? nullptr : bias.as<S>();
  const int64_t pass = T > 0 ? rows_per_pass<Accumulate<S>>(T, K) : 1;
  for (int64_t t = 0; t < T; t += pass)
    forward_rows<S, Y>(ctx, y + t * N, xs + t * K, ws, bs, std::min(pass, T - t), N, K);
}

template <class S, class D>
void backward_input(Ctx& ctx, D* dx, const S* dy, const S* w, const OuterShape& all) {
  using A = Accumulate<S>;
  for (int64_t t = 0; t < all.rows; t += kPackedRows) {
    ArenaScope scope(ctx.scratch);
    const OuterShape shape{std::min(kPackedRows, all.rows - t), all.columns, all.depth};
    const LeftOperand<S> left{dy + t * all.depth, 1, all.depth};
    if constexpr (std::is_same_v<D, A>) {
      outer_product(ctx, dx + t * all.columns, left, w, shape, false);
    } else {
      const int64_t count = shape.rows * shape.columns;
      A* sums = static_cast<A*>(ctx.scratch.allocate(count * static_cast<int64_t>(sizeof(A))));
      outer_product(ctx, sums, left, w, shape, false);
      parallel_ranges(ctx.threads, count, 1 << 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) dx[t * all.columns + i] = store<D>(sums[i]);
      });
    }
  }
}

}  // namespace

template <class S>
void dot_block(const BlockOutput<Accumulate<S>>& out, const PackedRows<Accumulate<S>>& x, const S* w,
               int64_t columns, Accumulate<S>* workspace) {
  const bool stream = x.count <= kStreamRows;
  const int64_t at_once = stream ? kStreamColumns : kBlockColumns;
  for (int64_t c = 0; c < columns; c += at_once) {
    const Columns<S> part{w + c * x.features, c, std::min(at_once, columns - c)};
    if (x.count <= kMaxTileRows)
      dot_streamed<S, Weights::once>(out, x, part);
    else if (stream)
      dot_streamed<S, Weights::passes>(out, x, part);
    else
      dot_packed(out, x, part, workspace);
  }
}

template void dot_block<float>(const BlockOutput<float>&, const PackedRows<float>&, const float*, int64_t,
                               float*);
template void dot_block<bf16>(const BlockOutput<float>&, const PackedRows<float>&, const bf16*, int64_t,
                              float*);
template void dot_block<double>(const BlockOutput<double>&, const PackedRows<double>&, const double*, int64_t,
                                double*);

void linear_forward(Ctx& ctx, Tensor y, CTensor x, CTensor w, CTensor bias) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    if (y.dtype == x.dtype)
      forward<S>(ctx, y.as<S>(), x, w, bias);
    else
      forward<S>(ctx, y.as<Accumulate<S>>(), x, w, bias);
  });
}

void linear_backward_input(Ctx& ctx, Tensor dx, CTensor dy, CTensor w) {
  dispatch_storage(dy.dtype, [&](auto s) {
    using S = decltype(s);
    const OuterShape shape{dx.dim(0), dx.dim(1), dy.dim(1)};
    if (dx.dtype == dy.dtype)
      backward_input(ctx, dx.as<S>(), dy.as<S>(), w.as<S>(), shape);
    else
      backward_input(ctx, dx.as<Accumulate<S>>(), dy.as<S>(), w.as<S>(), shape);
  });
}

void linear_backward_weight(Ctx& ctx, Tensor dw, CTensor dy, CTensor x, GradWrite write) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    outer_product(ctx, dw.as<Accumulate<S>>(), LeftOperand<S>{dy.as<S>(), dy.dim(1), 1}, x.as<S>(),
                  {dw.dim(0), dw.dim(1), x.dim(0)}, write == GradWrite::add);
  });
}

void linear_backward_bias(Ctx& ctx, Tensor db, CTensor dy) {
  dispatch_storage(dy.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    constexpr int64_t kColumns = 256;
    const S* from = dy.as<S>();
    A* to = db.as<A>();
    const int64_t T = dy.dim(0), N = dy.dim(1);
    parallel_ranges(ctx.threads, N, kColumns, [&](int64_t begin, int64_t end) {
      A sums[kColumns] = {};
      for (int64_t t = 0; t < T; ++t)
        for (int64_t n = begin; n < end; ++n) sums[n - begin] += load(from[t * N + n]);
      for (int64_t n = begin; n < end; ++n) to[n] += sums[n - begin];
    });
  });
}

}  // namespace temper::cpu
