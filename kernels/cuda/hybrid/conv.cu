#include "kernels/cuda/hybrid/conv.h"

namespace temper::cuda {
namespace {

/// go(std::integral_constant<int, taps>{})
template <int K = 1, class Go>
void with_taps(int64_t taps, Go&& go) {
  if (taps == K)
    go(std::integral_constant<int, K>{});
  else if constexpr (K < kMostDeltaTaps)
    with_taps<K + 1>(taps, go);
}

}  // namespace

void causal_conv_forward(Ctx& ctx, Tensor y, CTensor x, CTensor w, CTensor cu_seqlens) {
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    with_taps(w.dim(1), [&](auto k) {
      launch_conv<S, k>(ctx, y,
                        conv_rows<S>(x, w, cu_seqlens, kConvThreads * kGroup, lies_in_groups({y}, {})),
                        PlainRows{});
    });
  });
}

void causal_conv_paged(Ctx& ctx, Tensor y, DeltaPages pages, int64_t layer, CTensor x, CTensor w,
                       CTensor cu_seqlens) {
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    with_taps(w.dim(1), [&](auto k) {
      launch_conv<S, k>(ctx, y, paged_rows<S>(y, pages, layer, x, w, cu_seqlens), PlainRows{});
    });
  });
}

void causal_conv_backward(Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor w,
                          CTensor cu_seqlens) {
  if (x.dim(0) == 0) return;
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    with_taps(w.dim(1),
              [&](auto k) { launch_conv_backward<S, k>(ctx, dx, dw, dy, x, w, cu_seqlens, PlainRows{}); });
  });
}

}  // namespace temper::cuda
