#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {

void add(Ctx& ctx, Tensor y, CTensor a, CTensor b) {
  dispatch_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    S* to = y.as<S>();
    const S *left = a.as<S>(), *right = b.as<S>();
    parallel_ranges(ctx.threads, y.size(), row_grain(1), [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) to[i] = store<S>(load(left[i]) + load(right[i]));
    });
  });
}

void sum_in_order(Ctx& ctx, Tensor y, CTensor parts) {
  dispatch_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    const auto add_up = [&](const auto* from) {
      S* to = y.as<S>();
      const int64_t count = y.size(), ranks = parts.dim(0);
      parallel_ranges(ctx.threads, count, row_grain(1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          Accumulate<S> sum = load(from[i]);
          for (int64_t r = 1; r < ranks; ++r) sum += load(from[r * count + i]);
          to[i] = store<S>(sum);
        }
      });
    };
    if (parts.dtype == y.dtype)
      add_up(parts.as<S>());
    else
      add_up(parts.as<Accumulate<S>>());
  });
}

void widen(Ctx& ctx, Tensor y, CTensor x) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    Accumulate<S>* to = y.as<Accumulate<S>>();
    const S* from = x.as<S>();
    parallel_ranges(ctx.threads, x.size(), row_grain(1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = load(from[i]);
    });
  });
}

}  // namespace temper::cpu
