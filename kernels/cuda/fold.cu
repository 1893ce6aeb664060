#include "kernels/cuda/fold.h"
#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

constexpr int kFoldColumns = 32, kFoldChunks = 32;

/// Blocks of y = 1 take the second.
__global__ void __launch_bounds__(kFoldColumns* kFoldChunks)
    fold_kernel(const Fold first, const Fold second, int width) {
  begin_kernel();
  const Fold& fold = blockIdx.y == 0 ? first : second;
  const int count = fold.count;
  __shared__ float chunks[kFoldChunks][kFoldColumns + 1];
  const int column = static_cast<int>(blockIdx.x) * kFoldColumns + static_cast<int>(threadIdx.x);
  const int rows = (count + kFoldChunks - 1) / kFoldChunks, begin = static_cast<int>(threadIdx.y) * rows;
  float sum = 0.f;
  if (column < width)
    for (int k = begin; k < min(begin + rows, count); ++k)
      sum = __fadd_rn(sum, fold.partials[int64_t{k} * width + column]);
  chunks[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int k = 1; k < kFoldChunks; ++k) sum = __fadd_rn(sum, chunks[k][threadIdx.x]);
  fold.dw[column] = __fadd_rn(fold.dw[column], sum);
}

}  // namespace

void fold_partials(Ctx& ctx, int width, const Fold& first, const Fold& second) {
  launch(ctx.lane, fold_kernel,
         dim3(static_cast<unsigned>(blocks_for(width, kFoldColumns)), second.dw == nullptr ? 1 : 2),
         dim3(kFoldColumns, kFoldChunks), 0, first, second, width);
}

}  // namespace temper::cuda
