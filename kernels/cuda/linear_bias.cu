// Gradients of biases: column sums of dy, in parts of 256 rows, then over the parts, both ascending.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/scratch/linear.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kThreads = 128;

/// Block (columns, part): parts[part, n].
template <class S>
__global__ void part_sums_kernel(float* parts, const S* dy, int64_t T, int64_t N) {
  begin_kernel();
  const int64_t n = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (n >= N) return;
  const int64_t first = blockIdx.y * kBiasPartRows, end = min(first + kBiasPartRows, T);
  float sum = 0.f;
#pragma unroll 8
  for (int64_t t = first; t < end; ++t) sum = __fadd_rn(sum, cn::load(dy[t * N + n]));
  parts[blockIdx.y * N + n] = sum;
}

__global__ void add_parts_kernel(float* db, const float* parts, int64_t count, int64_t N) {
  begin_kernel();
  const int64_t n = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (n >= N) return;
  float sum = 0.f;
  for (int64_t i = 0; i < count; ++i) sum = __fadd_rn(sum, parts[i * N + n]);
  db[n] = __fadd_rn(db[n], sum);
}

}  // namespace

void linear_backward_bias(Ctx& ctx, Tensor db, CTensor dy) {
  const int64_t T = dy.dim(0), N = dy.dim(1);
  if (T == 0) return;
  ArenaScope scope(ctx.scratch);
  const Tensor parts = linear_backward_bias_scratch(ctx.scratch, T, N);
  const int count = blocks_for(T, kBiasPartRows), columns = blocks_for(N, kThreads);
  dispatch_gpu_storage(dy.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, part_sums_kernel<S>, dim3(static_cast<unsigned>(columns), static_cast<unsigned>(count)),
           kThreads, 0, parts.as<float>(), data_of<S>(dy), T, N);
  });
  launch(ctx.lane, add_parts_kernel, columns, kThreads, 0, db.as<float>(), parts.as<float>(), count, N);
}

}  // namespace temper::cuda
