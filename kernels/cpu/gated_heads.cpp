#include "kernels/cpu/cpu.h"
#include "kernels/cpu/hybrid.h"
#include "kernels/cpu/offset_norm.h"
#include "kernels/cpu/rotate.h"

namespace temper::cpu {
namespace {

constexpr int64_t kMaxHeadDim = 256;

/// Columns of a projected row: per query head [q | gate], then keys, then values.
struct GatedRow {
  explicit GatedRow(const AttentionShape& s) : shape(s) {}
  int64_t width() const { return 2 * shape.q_width() + 2 * shape.kv_width(); }
  /// Head `h` of q, then k.
  int64_t head(int64_t h) const {
    return h < shape.q_heads ? 2 * h * shape.head_dim : shape.q_width() + h * shape.head_dim;
  }
  int64_t gate(int64_t h) const { return (2 * h + 1) * shape.head_dim; }
  int64_t values() const { return 2 * shape.q_width() + shape.kv_width(); }
  AttentionShape shape;
};

}  // namespace

void gated_heads_forward(Ctx& ctx, Tensor qkv, Tensor rstd, CTensor x, CTensor wq, CTensor wk, RopeInput rope,
                         AttentionShape shape, double eps) {
  const int32_t* position = rope.positions.as<int32_t>();
  check_indices(position, x.dim(0), rope.cosine.dim(0), "position");
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const GatedRow row(shape);
    const int64_t heads = shape.q_heads + shape.kv_heads, dh = shape.head_dim, half = rope.cosine.dim(1);
    S* to = qkv.as<S>();
    A* r = rstd.as<A>();
    const S *from = x.as<S>(), *q_weight = wq.as<S>(), *k_weight = wk.as<S>();
    const A *cosine = rope.cosine.as<A>(), *sine = rope.sine.as<A>();
    parallel_ranges(ctx.threads, x.dim(0), row_grain(row.width()), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const S* projected = from + t * row.width();
        S* out = to + t * shape.qkv_width();
        for (int64_t h = 0; h < heads; ++h) {
          r[t * heads + h] =
              offset_norm_row(out + h * dh, projected + row.head(h), h < shape.q_heads ? q_weight : k_weight,
                              dh, static_cast<A>(eps));
          rotate_head<1>(out + h * dh, cosine + position[t] * half, sine + position[t] * half, half);
        }
        std::copy_n(projected + row.values(), shape.kv_width(), out + heads * dh);
      }
    });
  });
}

void gated_heads_backward(Ctx& ctx, Tensor dx, Tensor dwq, Tensor dwk, CTensor dqkv, CTensor x, CTensor wq,
                          CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape) {
  const int32_t* position = rope.positions.as<int32_t>();
  check_indices(position, x.dim(0), rope.cosine.dim(0), "position");
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const GatedRow row(shape);
    const int64_t heads = shape.q_heads + shape.kv_heads, dh = shape.head_dim, half = rope.cosine.dim(1);
    const A *cosine = rope.cosine.as<A>(), *sine = rope.sine.as<A>(), *r = rstd.as<A>();
    S* to = dx.as<S>();
    const S *upstream = dqkv.as<S>(), *from = x.as<S>(), *q_weight = wq.as<S>(), *k_weight = wk.as<S>();
    ArenaScope scope(ctx.scratch);
    A* both = ctx.scratch.zeros({2, dh}, kDTypeOf<A>).template as<A>();  // gradients of wq, wk
    sum_over_rows(ctx, both, x.dim(0), 2 * dh, [&](int64_t begin, int64_t end, A* partial) {
      S turned[kMaxHeadDim];
      for (int64_t t = begin; t < end; ++t) {
        const S* dy = upstream + t * shape.qkv_width();
        for (int64_t h = 0; h < heads; ++h) {
          const bool query = h < shape.q_heads;
          const int64_t head = t * row.width() + row.head(h);
          std::copy_n(dy + h * dh, dh, turned);
          rotate_head<-1>(turned, cosine + position[t] * half, sine + position[t] * half, half);
          offset_norm_row_backward<S>(to + head, query ? partial : partial + dh, turned, nullptr, from + head,
                                      query ? q_weight : k_weight, r[t * heads + h], dh);
        }
        std::copy_n(dy + heads * dh, shape.kv_width(), to + t * row.width() + row.values());
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

void output_gate_forward(Ctx& ctx, Tensor y, CTensor attended, CTensor x, AttentionShape shape) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const GatedRow row(shape);
    const int64_t dh = shape.head_dim;
    S* to = y.as<S>();
    const S *from = attended.as<S>(), *projected = x.as<S>();
    parallel_ranges(ctx.threads, x.dim(0), row_grain(shape.q_width()), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < shape.q_heads; ++h) {
          const S *gate = projected + t * row.width() + row.gate(h), *o = from + t * shape.q_width() + h * dh;
          S* out = to + t * shape.q_width() + h * dh;
#pragma omp simd
          for (int64_t i = 0; i < dh; ++i)
            out[i] = store<S>(load(o[i]) * (A(1) / (A(1) + exponential(-load(gate[i])))));
        }
    });
  });
}

void output_gate_backward(Ctx& ctx, Tensor dattended, Tensor dx, CTensor dy, CTensor attended, CTensor x,
                          AttentionShape shape) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const GatedRow row(shape);
    const int64_t dh = shape.head_dim;
    S *to = dattended.as<S>(), *to_row = dx.as<S>();
    const S *upstream = dy.as<S>(), *from = attended.as<S>(), *projected = x.as<S>();
    parallel_ranges(ctx.threads, x.dim(0), row_grain(shape.q_width()), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < shape.q_heads; ++h) {
          const int64_t gate = t * row.width() + row.gate(h), head = t * shape.q_width() + h * dh;
#pragma omp simd
          for (int64_t i = 0; i < dh; ++i) {
            const A sigmoid = A(1) / (A(1) + exponential(-load(projected[gate + i])));
            const A dm = load(upstream[head + i]);
            to_row[gate + i] = store<S>(dm * load(from[head + i]) * (sigmoid * (A(1) - sigmoid)));
            to[head + i] = store<S>(dm * sigmoid);
          }
        }
    });
  });
}

}  // namespace temper::cpu
