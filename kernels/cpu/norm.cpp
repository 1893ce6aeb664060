#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rotate.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {
namespace {

constexpr int64_t kMaxHeadDim = 256;

/// Returns 1 / rms.
template <class S, class A = Accumulate<S>>
inline A norm_row(S* y, const S* x, const S* w, int64_t width, A eps) {
  const A squares =
      lane_sum<A>(0, width, [&](A sum, int64_t i) { return std::fma(load(x[i]), load(x[i]), sum); });
  const A r = A(1) / std::sqrt(squares / static_cast<A>(width) + eps);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) y[i] = store<S>(load(w[i]) * load(store<S>(load(x[i]) * r)));
  return r;
}

/// dx = round(dresidual + ..), without the addition where that is null; dw accumulates.
template <class S, class A = Accumulate<S>>
inline void norm_row_backward(S* dx, A* dw, const S* dy, const S* dresidual, const S* x, const S* w, A r,
                              int64_t width) {
  const A dot = lane_sum<A>(
      0, width, [&](A sum, int64_t i) { return std::fma(load(dy[i]) * load(w[i]), load(x[i]) * r, sum); });
  const A mean = dot / static_cast<A>(width);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const A normed = load(x[i]) * r, upstream = load(dy[i]);
    const A through = r * (upstream * load(w[i]) - normed * mean);
    dw[i] = std::fma(upstream, normed, dw[i]);
    dx[i] = store<S>(dresidual ? load(dresidual[i]) + through : through);
  }
}

}  // namespace

void rmsnorm_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = x.dim(1);
    S* to = y.as<S>();
    A* r = rstd.as<A>();
    const S *from = x.as<S>(), *weight = w.as<S>();
    parallel_ranges(ctx.threads, x.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        r[t] = norm_row(to + t * width, from + t * width, weight, width, static_cast<A>(eps));
    });
  });
}

void rmsnorm_backward(Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x, CTensor w,
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
        norm_row_backward(to + t * width, partial, upstream + t * width, past ? past + t * width : nullptr,
                          from + t * width, weight, r[t], width);
    });
  });
}

void head_norm_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk,
                       AttentionShape shape, double eps) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = shape.qkv_width(), heads = shape.q_heads + shape.kv_heads, dh = shape.head_dim;
    S* to = y.as<S>();
    A* r = rstd.as<A>();
    const S *from = x.as<S>(), *q_weight = wq.as<S>(), *k_weight = wk.as<S>();
    parallel_ranges(ctx.threads, x.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = t * width, values = row + heads * dh;
        for (int64_t h = 0; h < heads; ++h)
          r[t * heads + h] = norm_row(to + row + h * dh, from + row + h * dh,
                                      h < shape.q_heads ? q_weight : k_weight, dh, static_cast<A>(eps));
        std::copy_n(from + values, shape.kv_width(), to + values);
      }
    });
  });
}

void head_norm_rope_backward(Ctx& ctx, Tensor dx, Tensor dwq, Tensor dwk, CTensor dy, CTensor x, CTensor wq,
                             CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape) {
  const int32_t* position = rope.positions.as<int32_t>();
  check_indices(position, x.dim(0), rope.cosine.dim(0), "position");
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = shape.qkv_width(), heads = shape.q_heads + shape.kv_heads, dh = shape.head_dim;
    const A *cosine = rope.cosine.as<A>(), *sine = rope.sine.as<A>();
    S* to = dx.as<S>();
    const S *upstream = dy.as<S>(), *from = x.as<S>(), *q_weight = wq.as<S>(), *k_weight = wk.as<S>();
    const A* r = rstd.as<A>();
    ArenaScope scope(ctx.scratch);
    A* both = ctx.scratch.zeros({2, dh}, kDTypeOf<A>).template as<A>();  // gradients of wq, wk
    sum_over_rows(ctx, both, x.dim(0), 2 * dh, [&](int64_t begin, int64_t end, A* partial) {
      S turned[kMaxHeadDim];
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = t * width, values = row + heads * dh, angle = position[t] * (dh / 2);
        for (int64_t h = 0; h < heads; ++h) {
          const bool query = h < shape.q_heads;
          const int64_t head = row + h * dh;
          std::copy_n(upstream + head, dh, turned);
          rotate_head<-1>(turned, cosine + angle, sine + angle, dh / 2);
          norm_row_backward<S>(to + head, query ? partial : partial + dh, turned, nullptr, from + head,
                               query ? q_weight : k_weight, r[t * heads + h], dh);
        }
        if (to != upstream) std::copy_n(upstream + values, shape.kv_width(), to + values);
      }
    });
    A *q_sum = dwq.as<A>(), *k_sum = dwk.as<A>();
    parallel_ranges(ctx.threads, dh, dh, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        q_sum[i] += both[i];
        k_sum[i] += both[dh + i];
      }
    });
  });
}

void add_rmsnorm_forward(Ctx& ctx, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
                         double eps) {
  add(ctx, sum, a, b);
  rmsnorm_forward(ctx, y, rstd, sum, w, eps);
}

void head_norm_rope_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk,
                            RopeInput rope, AttentionShape shape, double eps) {
  head_norm_forward(ctx, y, rstd, x, wq, wk, shape, eps);
  rope_forward(ctx, y, rope.positions, rope.cosine, rope.sine, shape);
}

void head_norm_rope_append(Ctx& ctx, Tensor y, Tensor rstd, PagedKv kv, int64_t layer, CTensor x, CTensor wq,
                           CTensor wk, RopeInput rope, CTensor cu_seqlens, AttentionShape shape, double eps) {
  head_norm_rope_forward(ctx, y, rstd, x, wq, wk, rope, shape, eps);
  append_kv(ctx, kv, layer, y, cu_seqlens, shape);
}

}  // namespace temper::cpu
