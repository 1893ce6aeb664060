#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {
namespace {

/// row(whole, own): for each row of each block its number in the product and in B; `columns`: the block's
/// first column in the product.
template <class Row>
void for_each_row(Ctx& ctx, const AdapterBlocks& blocks, int64_t rank, Row&& row) {
  for (int i = 0; i < blocks.count; ++i)
    parallel_ranges(ctx.threads, blocks.rows[i], row_grain(rank), [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) row(blocks.to[i] + j, blocks.from[i] + j, i * rank);
    });
}

/// The elements of an unrounded product that is added to something, in rows of a multiple of 128.
constexpr int64_t kAddedElements = int64_t{1} << 24;

/// y = round(fma(scale, z, y)); z: in the accumulate dtype.
void add_scaled(Ctx& ctx, const Tensor& y, const CTensor& z, double scale) {
  dispatch_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const A factor = static_cast<A>(scale);
    S* to = y.as<S>();
    const A* from = z.as<A>();
    parallel_ranges(ctx.threads, y.size(), row_grain(1), [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) to[i] = store<S>(std::fma(factor, from[i], load(to[i])));
    });
  });
}

/// each(begin, end) for pieces of `rows` rows of so many columns.
template <class Each>
void in_pieces(int64_t rows, int64_t columns, Each&& each) {
  const int64_t step = std::max<int64_t>(1, kAddedElements / columns / 128) * 128;
  for (int64_t at = 0; at < rows; at += step) each(at, std::min(rows, at + step));
}

/// y = round(fma(scale, z, y)), where multiply(z, begin, end) makes rows [begin, end) of z.
template <class Multiply>
void add_product(Ctx& ctx, const Tensor& y, double scale, Multiply&& multiply) {
  in_pieces(y.dim(0), y.dim(1), [&](int64_t begin, int64_t end) {
    ArenaScope scope(ctx.scratch);
    const Tensor z = ctx.scratch.make({end - begin, y.dim(1)}, accumulate_dtype(y.dtype));
    multiply(z, begin, end);
    add_scaled(ctx, rows(y, begin, end), z, scale);
  });
}

/// y = round(scale * z); z: in the accumulate dtype.
void round_scaled(Ctx& ctx, const Tensor& y, const CTensor& z, double scale) {
  dispatch_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const A factor = static_cast<A>(scale);
    S* to = y.as<S>();
    const A* from = z.as<A>();
    parallel_ranges(ctx.threads, y.size(), row_grain(1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = store<S>(factor * from[i]);
    });
  });
}

/// db += round(scale * the blocks of dw), or =.
void take_blocks(Ctx& ctx, const Tensor& db, const Tensor& dw, double scale, const AdapterBlocks& blocks,
                 GradWrite write) {
  dispatch_storage(db.dtype, [&](auto s) {
    using A = Accumulate<decltype(s)>;
    const int64_t rank = db.dim(1), width = dw.dim(1);
    const A factor = static_cast<A>(scale);
    A* to = db.as<A>();
    const A* from = dw.as<A>();
    for_each_row(ctx, blocks, rank, [&](int64_t whole, int64_t own, int64_t column) {
      for (int64_t k = 0; k < rank; ++k) {
        const A scaled = factor * from[whole * width + column + k];
        A& sum = to[own * rank + k];
        sum = write == GradWrite::add ? sum + scaled : scaled;
      }
    });
  });
}

}  // namespace

void linear_pair_forward(Ctx& ctx, Tensor y, Tensor u, CTensor x, CTensor w, CTensor bias, CTensor a) {
  linear_forward(ctx, y, x, w, bias);
  linear_forward(ctx, u, x, a, {});
}

void adapter_forward(Ctx& ctx, Tensor y, LowProduct low) {
  ArenaScope scope(ctx.scratch);
  CTensor w = low.b;  // where a block is all of V
  if (low.blocks.count > 1 || w.dim(0) != y.dim(1)) {
    const Tensor whole = ctx.scratch.make({y.dim(1), low.u.dim(1)}, w.dtype);
    adapter_weights(ctx, whole, low.b, low.blocks);
    w = whole;
  }
  add_product(ctx, y, low.scale, [&](const Tensor& z, int64_t begin, int64_t end) {
    linear_forward(ctx, z, rows(low.u, begin, end), w, {});
  });
}

void adapter_swiglu_forward(Ctx& ctx, Tensor a, CTensor gate_up, LowProduct low) {
  in_pieces(a.dim(0), gate_up.dim(1), [&](int64_t begin, int64_t end) {
    ArenaScope scope(ctx.scratch);
    const CTensor before = rows(gate_up, begin, end);
    const Tensor y = ctx.scratch.like(before);
    device::copy(ctx.lane, y.raw(), before.data, before.bytes());
    adapter_forward(ctx, y, {rows(low.u, begin, end), low.b, low.scale, low.blocks});
    swiglu_forward(ctx, rows(a, begin, end), y);
  });
}

void adapter_backward_low(Ctx& ctx, Tensor du, CTensor dy, CTensor v, double scale) {
  ArenaScope scope(ctx.scratch);
  const Tensor z = ctx.scratch.make({du.dim(0), du.dim(1)}, accumulate_dtype(du.dtype));
  linear_backward_input(ctx, z, dy, v);
  round_scaled(ctx, du, z, scale);
}

void adapter_backward_input(Ctx& ctx, Tensor dx, CTensor du, CTensor a) {
  add_product(ctx, dx, 1, [&](const Tensor& z, int64_t begin, int64_t end) {
    linear_backward_input(ctx, z, rows(du, begin, end), a);
  });
}

void adapter_swiglu_forward_kept(Ctx& ctx, Tensor a, Tensor gate_up, LowProduct low) {
  adapter_forward(ctx, gate_up, low);
  swiglu_forward(ctx, a, gate_up);
}

void adapter_swiglu_backward(Ctx& ctx, Tensor dgate_up, Tensor da, CTensor du, CTensor a, CTensor gate_up) {
  adapter_backward_input(ctx, da, du, a);
  swiglu_backward(ctx, dgate_up, da, gate_up);
}

void adapter_weights(Ctx& ctx, Tensor w, CTensor b, AdapterBlocks blocks) {
  device::fill(ctx.lane, w.raw(), 0, w.bytes());
  const int64_t rank = b.dim(1), width = w.dim(1), item = dtype_size(w.dtype);
  char* to = static_cast<char*>(w.raw());
  const char* from = static_cast<const char*>(b.data);
  for_each_row(ctx, blocks, rank, [&](int64_t whole, int64_t own, int64_t column) {
    std::copy_n(from + own * rank * item, rank * item, to + (whole * width + column) * item);
  });
}

void adapter_backward_a(Ctx& ctx, Tensor da, CTensor du, CTensor x, GradWrite write) {
  linear_backward_weight(ctx, da, du, x, write);
}

void adapter_backward_b(Ctx& ctx, Tensor db, CTensor dy, CTensor u, double scale, AdapterBlocks blocks,
                        GradWrite write) {
  ArenaScope scope(ctx.scratch);
  const Tensor dw = ctx.scratch.make({dy.dim(1), u.dim(1)}, db.dtype);
  linear_backward_weight(ctx, dw, dy, u, GradWrite::first);
  take_blocks(ctx, db, dw, scale, blocks, write);
}

}  // namespace temper::cpu
