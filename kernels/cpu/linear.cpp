#include "kernels/cpu/linear.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/linear_outer.h"

namespace temper::cpu {
namespace {

/// Whole tiles of rows; the last two are as even as they can be, so that none is a thin rest. `x_after` and
/// `w` are what comes after this panel.
template <class A, class W, Weights kWeights>
void dot_tiles(TileResult<A> result, const PackedRows<A>& x, const TileOperands<A, W>& panel, int64_t columns,
               const A* x_after, Ahead w) {
  constexpr bool kStream = kWeights != Weights::packed;
  for (int64_t row = 0; row < x.count;) {
    const int64_t left = x.count - row;
    const int64_t most = kStream ? kMaxTileRows : kTileRows<A>;
    const int64_t rows = left <= most ? left : std::min<int64_t>(most, (left + 1) / 2);
    TileOperands<A, W> in = panel;
    in.x += row * x.stride;
    const A* next = row + rows < x.count ? in.x + rows * x.stride : x_after;
    const int64_t tiles = columns / tile_columns<A>(static_cast<int>(rows));
    const Ahead ahead = kStream ? Ahead() : Ahead(next, x.stride, in.features, rows, tiles);
    if constexpr (kWeights == Weights::passes) {
      const int64_t tile = tile_columns<A>(static_cast<int>(rows)) * in.w_stride;
      const int64_t passes = (x.count + kMaxTileRows - 1) / kMaxTileRows;
      w = Ahead::of_pass(in.w + columns * in.w_stride, tile, in.features, row * passes / x.count, passes);
    }
    dot_strip_of<A, W, kWeights>(static_cast<int>(rows), in, result, columns, ahead, w);
    result.out += rows * result.out_stride;
    result.lanes += rows * columns * kLanes;
    row += rows;
  }
}

/// Columns of w in the accumulate dtype, one block of features: w itself where it is stored so, in whole
/// lines of the cache (a load that crosses lines takes twice as long), else a copy.
template <class S>
struct Panel {
  const Accumulate<S>* data;
  int64_t stride;
};

template <class S>
Panel<S> make_panel(Accumulate<S>* copy, const S* w, int64_t stride, int64_t columns, int64_t features) {
  if constexpr (std::is_same_v<S, Accumulate<S>>)
    if (features % kLanes == 0 && stride % kLanes == 0 && reinterpret_cast<uintptr_t>(w) % 64 == 0)
      return {w, stride};
  const int64_t copy_stride = packed_stride(features);
  for (int64_t c = 0; c < columns; ++c) pack_row(copy + c * copy_stride, w + c * stride, features);
  return {copy, copy_stride};
}

template <class S>
void dot_packed(Accumulate<S>* out, int64_t out_stride, const PackedRows<Accumulate<S>>& x, const S* w,
                int64_t columns, Accumulate<S>* workspace) {
  using A = Accumulate<S>;
  const int64_t blocks = (x.features + kBlockFeatures - 1) / kBlockFeatures;
  const int64_t per_block = ((x.features + blocks - 1) / blocks + kLanes - 1) / kLanes * kLanes;
  A* lanes = workspace + kBlockColumns * packed_stride(std::min(x.features, kBlockFeatures));
  const int64_t tiles = (x.count + kTileRows<A> - 1) / kTileRows<A> * columns / tile_columns<A>(kTileRows<A>);
  for (int64_t k = 0; k < x.features; k += per_block) {
    const int64_t features = std::min(per_block, x.features - k);
    const int64_t padded = (features + kLanes - 1) / kLanes * kLanes;
    const bool last = k + per_block >= x.features;
    const Panel<S> panel = make_panel(workspace, w + k, x.features, columns, features);
    const A* x_after = last ? x.data + x.count * x.stride : x.data + k + per_block;
    const S* w_after = last ? w + columns * x.features : w + k + per_block;
    dot_tiles<A, A, Weights::packed>({out, out_stride, lanes, k == 0, last}, x,
                                     {x.data + k, x.stride, panel.data, panel.stride, padded}, columns,
                                     x_after, Ahead(w_after, x.features, features, columns, tiles));
  }
}

template <class A>
int64_t whole_tiles(int64_t rows) {
  return (rows + kTileRows<A> - 1) / kTileRows<A> * kTileRows<A>;
}

/// y = round(sums + bias)
template <class S, class Y>
void finish_row(Y* y, const Accumulate<S>* sums, const S* bias, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = store<Y>(bias ? sums[i] + load(bias[i]) : sums[i]);
}

/// One batch of at most kPackedRows rows.
template <class S, class Y>
void forward_rows(Ctx& ctx, Y* y, const S* x, const S* w, const S* bias, int64_t T, int64_t N, int64_t K) {
  using A = Accumulate<S>;
  ArenaScope scope(ctx.arena);
  const PackedRows<A> packed = pack_rows(ctx, x, T, K);
  const int64_t workspace = dot_workspace(K);
  const ThreadBuffers<A> buffers(ctx, workspace + kBlockRows * kBlockColumns);
  const int64_t row_blocks = (T + kBlockRows - 1) / kBlockRows,
                block_rows = whole_tiles<A>((T + row_blocks - 1) / row_blocks);
  const int64_t column_blocks = (N + kBlockColumns - 1) / kBlockColumns;
  parallel_for(ctx.threads, row_blocks * column_blocks, [&](int64_t i) {
    const int64_t r0 = i % row_blocks * block_rows, r1 = std::min(r0 + block_rows, T);
    const int64_t c0 = i / row_blocks * kBlockColumns, columns = std::min(kBlockColumns, N - c0);
    if (r0 >= r1) return;
    A* sums = buffers.mine() + workspace;
    dot_block<S>(sums, kBlockColumns, packed.rows(r0, r1), w + c0 * K, columns, buffers.mine());
    for (int64_t r = r0; r < r1; ++r)
      finish_row<S>(y + r * N + c0, sums + (r - r0) * kBlockColumns, bias ? bias + c0 : nullptr, columns);
  });
}

template <class S, class Y>
void forward(Ctx& ctx, Y* y, const CTensor& x, const CTensor& w, const CTensor& bias) {
  const int64_t T = x.dim(0), K = x.dim(1), N = w.dim(0);
  const S* xs = x.as<S>();
  const S* ws = w.as<S>();
  const S* bs = bias.empty() ? nullptr : bias.as<S>();
  for (int64_t t = 0; t < T; t += kPackedRows)
    forward_rows<S, Y>(ctx, y + t * N, xs + t * K, ws, bs, std::min(kPackedRows, T - t), N, K);
}

template <class S>
void backward_input(Ctx& ctx, S* dx, const S* dy, const S* w, const OuterShape& all) {
  using A = Accumulate<S>;
  for (int64_t t = 0; t < all.rows; t += kPackedRows) {
    ArenaScope scope(ctx.arena);
    const OuterShape shape{std::min(kPackedRows, all.rows - t), all.columns, all.depth};
    const LeftOperand<S> left{dy + t * all.depth, 1, all.depth};
    if constexpr (std::is_same_v<S, A>) {
      outer_product(ctx, dx + t * all.columns, left, w, shape, false);
    } else {
      const int64_t count = shape.rows * shape.columns;
      A* sums = static_cast<A*>(ctx.arena.allocate(count * static_cast<int64_t>(sizeof(A))));
      outer_product(ctx, sums, left, w, shape, false);
      parallel_ranges(ctx.threads, count, 1 << 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) dx[t * all.columns + i] = store<S>(sums[i]);
      });
    }
  }
}

}  // namespace

template <class S>
void dot_block(Accumulate<S>* out, int64_t out_stride, const PackedRows<Accumulate<S>>& x, const S* w,
               int64_t columns, Accumulate<S>* workspace) {
  using A = Accumulate<S>;
  const bool stream = x.count <= kStreamRows;
  const int64_t at_once = stream ? kStreamColumns : kBlockColumns;
  for (int64_t c = 0; c < columns; c += at_once) {
    const int64_t part = std::min(at_once, columns - c);
    const S* rows = w + c * x.features;
    const TileResult<A> result{out + c, out_stride, nullptr, true, true};
    const TileOperands<A, S> in{x.data, x.stride, rows, x.features, x.features};
    if (x.count <= kMaxTileRows)
      dot_tiles<A, S, Weights::once>(result, x, in, part, nullptr, {});
    else if (stream)
      dot_tiles<A, S, Weights::passes>(result, x, in, part, nullptr, {});
    else
      dot_packed(out + c, out_stride, x, rows, part, workspace);
  }
}

template void dot_block<float>(float*, int64_t, const PackedRows<float>&, const float*, int64_t, float*);
template void dot_block<bf16>(float*, int64_t, const PackedRows<float>&, const bf16*, int64_t, float*);
template void dot_block<double>(double*, int64_t, const PackedRows<double>&, const double*, int64_t, double*);

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
  dispatch_storage(dx.dtype, [&](auto s) {
    using S = decltype(s);
    backward_input(ctx, dx.as<S>(), dy.as<S>(), w.as<S>(), {dx.dim(0), dx.dim(1), dy.dim(1)});
  });
}

void linear_backward_weight(Ctx& ctx, Tensor dw, CTensor dy, CTensor x) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    outer_product(ctx, dw.as<Accumulate<S>>(), LeftOperand<S>{dy.as<S>(), dy.dim(1), 1}, x.as<S>(),
                  {dw.dim(0), dw.dim(1), x.dim(0)}, true);
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
