#include <algorithm>

#include "src/core/arena.h"
#include "src/core/cuda.h"
#include "src/core/device.h"
#include "tests/gpu/read_rate.h"

namespace temper {
namespace {

constexpr int kThreads = 512, kInFlight = 8;  // 16-byte loads of a thread before the first use

/// Every block sums a piece of its own.
__global__ void __launch_bounds__(kThreads) read_kernel(unsigned* sink, const uint4* p, int64_t per_block) {
  const uint4* own = p + blockIdx.x * per_block;
  unsigned sum = 0;
  for (int64_t i = threadIdx.x; i < per_block; i += kThreads * kInFlight) {
    uint4 v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      v[k] = i + k * kThreads < per_block ? __ldcs(own + i + k * kThreads) : uint4{};
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  if (sum == 0x12345678u) *sink = sum;  // keeps the loads alive
}

__global__ void __launch_bounds__(kThreads) copy_kernel(uint4* to, const uint4* from, int64_t per_block) {
  const int64_t first = blockIdx.x * per_block;
  for (int64_t i = threadIdx.x; i < per_block; i += kThreads * kInFlight) {
    uint4 v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      if (i + k * kThreads < per_block) v[k] = __ldcs(from + first + i + k * kThreads);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      if (i + k * kThreads < per_block) __stcs(to + first + i + k * kThreads, v[k]);
  }
}

/// Seconds of the fastest of several runs after one to warm up.
template <class Run>
double best_seconds(Lane& lane, Run&& run) {
  constexpr int kRuns = 10;
  cudaEvent_t start, end;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&end));
  float best = 1e30f;
  for (int i = 0; i < kRuns; ++i) {
    CUDA_CHECK(cudaEventRecord(start, stream_of(lane)));
    run();
    CUDA_CHECK(cudaEventRecord(end, stream_of(lane)));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
    if (i > 0) best = std::min(best, ms);
  }
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(end));
  return best * 1e-3;
}

constexpr int64_t kBytes = int64_t{8} << 30, kBlocks = 1 << 14;

}  // namespace

double read_rate() {
  Lane lane(Device::cuda);
  Arena arena(Device::cuda);
  void* memory = arena.allocate(kBytes + 256);
  device::fill(lane, memory, 0x5a, kBytes + 256);
  auto* sink = reinterpret_cast<unsigned*>(static_cast<char*>(memory) + kBytes);
  return kBytes / best_seconds(lane, [&] {
           read_kernel<<<kBlocks, kThreads, 0, stream_of(lane)>>>(sink, static_cast<const uint4*>(memory),
                                                                  kBytes / 16 / kBlocks);
         });
}

double copy_rate() {
  Lane lane(Device::cuda);
  Arena arena(Device::cuda);
  auto* memory = static_cast<uint4*>(arena.allocate(kBytes));
  device::fill(lane, memory, 0x5a, kBytes);
  constexpr int64_t kHalf = kBytes / 2 / 16;
  return kBytes / best_seconds(lane, [&] {
           copy_kernel<<<kBlocks, kThreads, 0, stream_of(lane)>>>(memory + kHalf, memory, kHalf / kBlocks);
         });
}

}  // namespace temper
