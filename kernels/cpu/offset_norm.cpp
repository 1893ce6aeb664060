#include "kernels/cpu/offset_norm.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/hybrid.h"

namespace temper::cpu {

void offset_norm_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = x.dim(1);
    S* to = y.as<S>();
    A* r = rstd.as<A>();
    const S *from = x.as<S>(), *weight = w.as<S>();
    parallel_ranges(ctx.threads, x.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        r[t] = offset_norm_row(to + t * width, from + t * width, weight, width, static_cast<A>(eps));
    });
  });
}

void add_offset_norm_forward(Ctx& ctx, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
                             double eps) {
  add(ctx, sum, a, b);
  offset_norm_forward(ctx, y, rstd, sum, w, eps);
}

void offset_norm_backward(Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x, CTensor w,
                          CTensor rstd) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = x.dim(1);
    S* to = dx.as<S>();
    const S *upstream = dy.as<S>(), *from = x.as<S>(), *weight = w.as<S>();
    const S* past = dresidual.empty() ? nullptr : dresidual.as<S>();
    const A* r = rstd.as<A>();
    sum_over_rows(ctx, dw.as<A>(), x.dim(0), width, [&](int64_t begin, int64_t end, A* partial) {
      for (int64_t t = begin; t < end; ++t)
        offset_norm_row_backward(to + t * width, partial, upstream + t * width,
                                 past ? past + t * width : nullptr, from + t * width, weight, r[t], width);
    });
  });
}

}  // namespace temper::cpu
