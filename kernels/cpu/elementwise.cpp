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

void sum_in_order(Ctx& ctx, Tensor y, CTensor parts, CTensor own, int64_t own_part, GradWrite write) {
  dispatch_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    const auto add_up = [&]<class P>(P) {
      S* to = y.as<S>();
      const P *from = parts.as<P>(), *mine = own_part < 0 ? nullptr : own.as<P>();
      const int64_t count = y.size(), ranks = parts.dim(0);
      const auto part = [&](int64_t r, int64_t i) {
        return load(r == own_part ? mine[i] : from[r * count + i]);
      };
      parallel_ranges(ctx.threads, count, row_grain(1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          Accumulate<S> sum = part(0, i);
          for (int64_t r = 1; r < ranks; ++r) sum += part(r, i);
          to[i] = store<S>(write == GradWrite::add ? load(to[i]) + sum : sum);
        }
      });
    };
    if (parts.dtype == y.dtype)
      add_up(S{});
    else
      add_up(Accumulate<S>{});
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
