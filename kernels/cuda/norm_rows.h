#pragma once
// Norms of rows, forward; what the weight does is a parameter (PlainWeight, OffsetWeight).

#include <type_traits>

#include "kernels/cuda/norm.h"

namespace temper::cuda {

inline constexpr int kNormRowThreads = 256;
static_assert(kGroup == canonical::kNormGroup && kNormRowThreads == canonical::kNormThreads);

/// y = norm of a, or (kAdds) of sum = a + b, which is stored too. A row stays in registers, kGroups groups of
/// eight a thread; the weights are read before the previous kernel has finished.
template <class Weight, class S, int kGroups, bool kAdds>
__global__ void __launch_bounds__(kNormRowThreads)
    row_norm_kernel(S* y, S* sum, float* rstd, const S* a, const S* b, const S* w, int width, float eps) {
  __shared__ float partial[kNormRowThreads / 32];
  const int64_t row = int64_t{blockIdx.x} * width;
  const bool vector = width % kGroup == 0;
  float v[kGroups][kGroup], weight[kGroups][kGroup], squares = 0.f;
  const auto first = [](int g) { return (static_cast<int>(threadIdx.x) + g * kNormRowThreads) * kGroup; };
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
    if (first(g) < width) load_group(weight[g], w + first(g), width - first(g), vector);
  begin_kernel();
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int at = first(g), n = width - at;
    if (at >= width) continue;
    load_group(v[g], a + row + at, n, vector);
    if constexpr (kAdds) {
      float other[kGroup];
      load_group(other, b + row + at, n, vector);
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
        v[g][i] = canonical::load(canonical::store<S>(__fadd_rn(v[g][i], other[i])));
      store_group(sum + row + at, v[g], n, vector);
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (i < n) squares = canonical::add_square(squares, v[g][i]);
  }
  const float scale = canonical::rms_scale(canonical::block_sum(squares, partial), width, eps);
  if (threadIdx.x == 0) rstd[blockIdx.x] = scale;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (first(g) >= width) continue;
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      v[g][i] = canonical::load(
          Weight::value(canonical::store<S>(v[g][i]), scale, canonical::store<S>(weight[g][i])));
    store_group(y + row + first(g), v[g], width - first(g), vector);
  }
}

/// sum and b are null where nothing is added.
template <class Weight>
void normalize_rows(Ctx& ctx, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
                    double eps) {
  constexpr int kPerGroup = kNormRowThreads * kGroup;
  const auto width = static_cast<int>(a.dim(1));
  CHECK(width <= 8 * kPerGroup, "rows of {} elements", width);
  dispatch_gpu_storage(a.dtype, [&](auto s) {
    using S = decltype(s);
    const auto go = [&](auto kernel) {
      launch(ctx.lane, kernel, static_cast<unsigned>(a.dim(0)), kNormRowThreads, 0, data_of<S>(y),
             data_of<S>(sum), rstd.as<float>(), data_of<S>(a), data_of<S>(b), data_of<S>(w), width, eps);
    };
    const auto sized = [&](auto adds) {
      constexpr bool kAdds = decltype(adds)::value;
      if (width <= kPerGroup) return go(row_norm_kernel<Weight, S, 1, kAdds>);
      if (width <= 2 * kPerGroup) return go(row_norm_kernel<Weight, S, 2, kAdds>);
      if (width <= 4 * kPerGroup) return go(row_norm_kernel<Weight, S, 4, kAdds>);
      go(row_norm_kernel<Weight, S, 8, kAdds>);
    };
    if (b.empty())
      sized(std::false_type{});
    else
      sized(std::true_type{});
  });
}

}  // namespace temper::cuda
