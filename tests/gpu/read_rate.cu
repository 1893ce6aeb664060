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

}  // namespace

double read_rate() {
  constexpr int64_t kBytes = int64_t{8} << 30, kBlocks = 1 << 14, kPerBlock = kBytes / 16 / kBlocks;
  constexpr int kRuns = 10;
  Lane lane(Device::cuda);
  Arena arena(Device::cuda);
  void* memory = arena.allocate(kBytes + 256);
  device::fill(lane, memory, 0x5a, kBytes + 256);
  auto* sink = reinterpret_cast<unsigned*>(static_cast<char*>(memory) + kBytes);
  cudaEvent_t start, end;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&end));
  float best = 1e30f;
  for (int i = 0; i < kRuns; ++i) {
    CUDA_CHECK(cudaEventRecord(start, stream_of(lane)));
    read_kernel<<<kBlocks, kThreads, 0, stream_of(lane)>>>(sink, static_cast<const uint4*>(memory),
                                                           kPerBlock);
    CUDA_CHECK(cudaEventRecord(end, stream_of(lane)));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
    if (i > 0) best = std::min(best, ms);
  }
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(end));
  return kBytes / (best * 1e-3);
}

}  // namespace temper
