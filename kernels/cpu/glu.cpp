#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {
namespace {

template <class S, class A = Accumulate<S>>
inline void swiglu_row(S* a, const S* gate, const S* up, int64_t width) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const A g = load(gate[i]);
    a[i] = store<S>((g / (A(1) + exponential(-g))) * load(up[i]));
  }
}

template <class S, class A = Accumulate<S>>
inline void swiglu_row_backward(S* dgate, S* dup, const S* da, const S* gate, const S* up, int64_t width) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const A g = load(gate[i]), upstream = load(da[i]);
    const A sigmoid = A(1) / (A(1) + exponential(-g));
    dgate[i] = store<S>(upstream * load(up[i]) * (sigmoid * (A(1) + g * (A(1) - sigmoid))));
    dup[i] = store<S>(upstream * (g * sigmoid));
  }
}

}  // namespace

void swiglu_forward(Ctx& ctx, Tensor a, CTensor gate_up) {
  dispatch_storage(a.dtype, [&](auto s) {
    using S = decltype(s);
    const int64_t width = a.dim(1);
    S* to = a.as<S>();
    const S* from = gate_up.as<S>();
    parallel_ranges(ctx.threads, a.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        swiglu_row(to + t * width, from + 2 * t * width, from + (2 * t + 1) * width, width);
    });
  });
}

void linear_swiglu_forward(Ctx& ctx, Tensor a, CTensor x, CTensor w, CTensor bias) {
  ArenaScope scope(ctx.scratch);
  const Tensor gate_up = ctx.scratch.make({x.dim(0), w.dim(0)}, x.dtype);
  linear_forward(ctx, gate_up, x, w, bias);
  swiglu_forward(ctx, a, gate_up);
}

void swiglu_backward(Ctx& ctx, Tensor dgate_up, CTensor da, CTensor gate_up) {
  dispatch_storage(da.dtype, [&](auto s) {
    using S = decltype(s);
    const int64_t width = da.dim(1);
    S* to = dgate_up.as<S>();
    const S *upstream = da.as<S>(), *from = gate_up.as<S>();
    parallel_ranges(ctx.threads, da.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t gate = 2 * t * width, up = gate + width;
        swiglu_row_backward(to + gate, to + up, upstream + t * width, from + gate, from + up, width);
      }
    });
  });
}

}  // namespace temper::cpu
