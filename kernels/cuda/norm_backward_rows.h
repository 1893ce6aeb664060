#pragma once
// Backward of norms of rows; what the weight does is a parameter (PlainWeight, OffsetWeight).

#include "kernels/cuda/fold.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/scratch/norm.h"

namespace temper::cuda {

template <class S>
struct NormCall {
  S* dx;
  float* partials;
  const S *dy, *past, *x, *w;  // past: the gradient beside the norm, or null
  const float* rstd;
  int64_t rows;
  int per_block, width;
};

/// What one thread holds of kRows neighbouring rows: groups g kThreads + threadIdx.x of each. Zeros beyond
/// `end` and beyond the width.
template <class S, int kThreads, int kRows, int kGroups>
struct NormInput {
  RawGroup<S> dy[kRows][kGroups], past[kRows][kGroups], x[kRows][kGroups];
  float rstd[kRows];

  TEMPER_DEVICE static int first(int g) { return (static_cast<int>(threadIdx.x) + g * kThreads) * kGroup; }
  TEMPER_DEVICE void load(const NormCall<S>& call, int64_t row, int64_t end) {
    const bool vector = call.width % kGroup == 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool exists = row + r < end;
      const int64_t offset = (row + r) * call.width;
      rstd[r] = exists ? call.rstd[row + r] : 0.f;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const int at = first(g), n = exists ? call.width - at : 0;
        const bool whole = vector && n > 0;
        load_raw(dy[r][g], call.dy + offset + at, n, whole);
        load_raw(x[r][g], call.x + offset + at, n, whole);
        if (call.past != nullptr) load_raw(past[r][g], call.past + offset + at, n, whole);
      }
    }
  }
};

/// Rows [blockIdx.x per_block, ..), kRows at a time, the next ones on their way where kAhead says so. dx may
/// be dy or past: a thread writes what it alone has read.
template <class Weight, class S, int kThreads, int kRows, int kGroups, bool kAhead>
__global__ void __launch_bounds__(kThreads, 512 / kThreads) norm_backward_kernel(const NormCall<S> call) {
  using Input = NormInput<S, kThreads, kRows, kGroups>;
  constexpr int kWarps = kThreads / 32;
  __shared__ float dots[2][kRows][kWarps];
  const int width = call.width;
  const bool vector = width % kGroup == 0;
  RawGroup<S> weight[kGroups];
  float sums[kGroups][kGroup] = {};
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int n = width - Input::first(g);
    load_raw(weight[g], call.w + Input::first(g), n, vector && n > 0);
  }
  begin_kernel();
  const int64_t begin = blockIdx.x * int64_t{call.per_block}, end = min(begin + call.per_block, call.rows);
  Input now, next;
  now.load(call, begin, end);
  int side = 0;  // of dots: one barrier a turn is enough when turns take sides
  for (int64_t row = begin; row < end; row += kRows, side ^= 1) {
    if constexpr (kAhead) next.load(call, row + kRows, end);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float dot = 0.f;
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
#pragma unroll
        for (int i = 0; i < kGroup; ++i)
          dot = canonical::add_norm_dot(dot, canonical::load(now.dy[r][g].at[i]),
                                        Weight::of(canonical::load(weight[g].at[i])),
                                        __fmul_rn(canonical::load(now.x[r][g].at[i]), now.rstd[r]));
      dot = canonical::warp_sum(dot);
      if ((threadIdx.x & 31) == 0) dots[side][r][threadIdx.x / 32] = dot;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float dot = dots[side][r][0];
#pragma unroll
      for (int k = 1; k < kWarps; ++k) dot = __fadd_rn(dot, dots[side][r][k]);
      const float mean = __fdiv_rn(dot, static_cast<float>(width));
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const int at = Input::first(g), n = width - at;
        float dx[kGroup];
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          const float dy = canonical::load(now.dy[r][g].at[i]),
                      normed = __fmul_rn(canonical::load(now.x[r][g].at[i]), now.rstd[r]);
          sums[g][i] = __fmaf_rn(dy, normed, sums[g][i]);
          dx[i] = canonical::norm_gradient(dy, Weight::of(canonical::load(weight[g].at[i])), normed, mean,
                                           now.rstd[r]);
          if (call.past != nullptr) dx[i] = __fadd_rn(canonical::load(now.past[r][g].at[i]), dx[i]);
        }
        if (n > 0 && row + r < end) store_group(call.dx + (row + r) * width + at, dx, n, vector);
      }
    }
    if constexpr (kAhead)
      now = next;
    else
      now.load(call, row + kRows, end);
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int at = Input::first(g);
    if (at < width)
      store_group(call.partials + int64_t{blockIdx.x} * width + at, sums[g], width - at, vector);
  }
}

template <class Weight, class S, int kThreads, int kRows, int kGroups>
void launch_norm_backward(Ctx& ctx, NormCall<S> call, Tensor dw) {
  constexpr bool kAhead = kRows * kGroups * sizeof(S) <= 4;  // as registers allow
  CHECK(kThreads == norm_backward_threads(call.width), "{} threads for rows of {}", kThreads, call.width);
  ArenaScope scope(ctx.scratch);
  const NormPartials partials = rmsnorm_backward_scratch(ctx.scratch, call.rows, call.width);
  call.per_block = static_cast<int>(partials.per_block);
  call.partials = partials.sums.as<float>();
  const int blocks = blocks_for(call.rows, call.per_block);
  launch(ctx.lane, norm_backward_kernel<Weight, S, kThreads, kRows, kGroups, kAhead>, blocks, kThreads, 0,
         call);
  fold_partials(ctx, call.width, {dw.as<float>(), call.partials, blocks});
}

template <class Weight>
void normalize_rows_backward(Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x,
                             CTensor w, CTensor rstd) {
  const auto width = static_cast<int>(x.dim(1));
  CHECK(width <= 16384, "rows of {} elements", width);
  if (x.dim(0) == 0) return;
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    const NormCall<S> call{data_of<S>(dx),
                           nullptr,
                           data_of<S>(dy),
                           data_of<S>(dresidual),
                           data_of<S>(x),
                           data_of<S>(w),
                           rstd.as<float>(),
                           x.dim(0),
                           0,
                           width};
    if (width <= 1024) return launch_norm_backward<Weight, S, 128, 2, 1>(ctx, call, dw);
    if (width <= 2048) return launch_norm_backward<Weight, S, 256, 2, 1>(ctx, call, dw);
    if (width <= 4096) return launch_norm_backward<Weight, S, 256, 1, 2>(ctx, call, dw);
    if (width <= 8192) return launch_norm_backward<Weight, S, 512, 1, 2>(ctx, call, dw);
    launch_norm_backward<Weight, S, 512, 1, 4>(ctx, call, dw);
  });
}

}  // namespace temper::cuda
