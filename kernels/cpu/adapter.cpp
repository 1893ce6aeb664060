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

}  // namespace

void adapter_weights(Ctx& ctx, Tensor w, CTensor b, AdapterBlocks blocks) {
  device::fill(ctx.lane, w.raw(), 0, w.bytes());
  const int64_t rank = b.dim(1), width = w.dim(1), item = dtype_size(w.dtype);
  char* to = static_cast<char*>(w.raw());
  const char* from = static_cast<const char*>(b.data);
  for_each_row(ctx, blocks, rank, [&](int64_t whole, int64_t own, int64_t column) {
    std::copy_n(from + own * rank * item, rank * item, to + (whole * width + column) * item);
  });
}

void adapter_gradient(Ctx& ctx, Tensor db, CTensor dw, double scale, AdapterBlocks blocks, GradWrite write) {
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

void add_scaled(Ctx& ctx, Tensor y, CTensor z, double scale) {
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

void round_scaled(Ctx& ctx, Tensor y, CTensor z, double scale) {
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

}  // namespace temper::cpu
