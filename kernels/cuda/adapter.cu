// What adapters take beside linear products: memory-bound, 16 bytes a thread where rows allow it.

#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

constexpr int kThreads = 256;

/// The block of a row of the product's weights, and its row in B; -1: it has none.
struct Place {
  int block = -1;
  int64_t row = 0;
};
TEMPER_DEVICE Place place_of(const AdapterBlocks& blocks, int64_t row) {
  Place place;
#pragma unroll
  for (int i = 0; i < AdapterBlocks::kMost; ++i)
    if (i < blocks.count && row >= blocks.to[i] && row < blocks.to[i] + blocks.rows[i])
      place = {i, row - blocks.to[i] + blocks.from[i]};
  return place;
}

/// Block (row of w).
template <class S>
__global__ void weights_kernel(S* w, const S* b, AdapterBlocks blocks, int rank) {
  begin_kernel();
  const int64_t row = blockIdx.x;
  const Place place = place_of(blocks, row);
  const int width = blocks.count * rank;
  for (int k = static_cast<int>(threadIdx.x); k < width; k += static_cast<int>(blockDim.x))
    w[row * width + k] = k / rank == place.block ? b[place.row * rank + k % rank] : canonical::store<S>(0.f);
}

/// Block (row of dw).
__global__ void gradient_kernel(float* db, const float* dw, float scale, AdapterBlocks blocks, int rank,
                                bool add) {
  begin_kernel();
  const int64_t row = blockIdx.x;
  const Place place = place_of(blocks, row);
  if (place.block < 0) return;
  const float* from = dw + (row * blocks.count + place.block) * rank;
  float* to = db + place.row * rank;
  for (int k = static_cast<int>(threadIdx.x); k < rank; k += static_cast<int>(blockDim.x)) {
    const float scaled = __fmul_rn(scale, from[k]);
    to[k] = add ? __fadd_rn(to[k], scaled) : scaled;
  }
}

/// y = round(fma(scale, z, y)), or without `onto` round(scale * z).
template <class S, bool kOnto>
__global__ void scaled_kernel(S* y, const float* z, float scale, int64_t count) {
  begin_kernel();
  const int64_t first = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * kGroup;
  if (first >= count) return;
  const bool whole = first + kGroup <= count;
  const int n = whole ? kGroup : static_cast<int>(count - first);
  float sum[kGroup], more[kGroup];
  load_group(more, z + first, n, whole);
  if constexpr (kOnto) load_group(sum, y + first, n, whole);
#pragma unroll
  for (int i = 0; i < kGroup; ++i)
    sum[i] = kOnto ? __fmaf_rn(scale, more[i], sum[i]) : __fmul_rn(scale, more[i]);
  store_group(y + first, sum, n, whole);
}

template <bool kOnto>
void scaled(Ctx& ctx, const Tensor& y, const CTensor& z, double scale) {
  dispatch_gpu_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, scaled_kernel<S, kOnto>, blocks_for(y.size(), int64_t{kThreads} * kGroup), kThreads, 0,
           data_of<S>(y), data_of<float>(z), static_cast<float>(scale), y.size());
  });
}

}  // namespace

void adapter_weights(Ctx& ctx, Tensor w, CTensor b, AdapterBlocks blocks) {
  dispatch_gpu_storage(w.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, weights_kernel<S>, blocks_for(w.dim(0), 1), 128, 0, data_of<S>(w), data_of<S>(b), blocks,
           static_cast<int>(b.dim(1)));
  });
  ctx.lane.order();  // a product may read weights before its wait
}

void adapter_gradient(Ctx& ctx, Tensor db, CTensor dw, double scale, AdapterBlocks blocks, GradWrite write) {
  launch(ctx.lane, gradient_kernel, blocks_for(dw.dim(0), 1), 64, 0, data_of<float>(db), data_of<float>(dw),
         static_cast<float>(scale), blocks, static_cast<int>(db.dim(1)), write == GradWrite::add);
}

void add_scaled(Ctx& ctx, Tensor y, CTensor z, double scale) { scaled<true>(ctx, y, z, scale); }

void round_scaled(Ctx& ctx, Tensor y, CTensor z, double scale) { scaled<false>(ctx, y, z, scale); }

}  // namespace temper::cuda
