#pragma once
// How long work takes on a GPU, by its events.

#include <algorithm>
#include <functional>
#include <limits>

#include "src/core/cuda.h"

namespace temper {

/// Shortest milliseconds of a few bursts of `count` runs after one to warm up.
inline double milliseconds(Lane& lane, int count, const std::function<void()>& run) {
  constexpr int kBursts = 5;
  cudaEvent_t start, end;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&end));
  run();
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kBursts; ++i) {
    CUDA_CHECK(cudaEventRecord(start, stream_of(lane)));
    for (int k = 0; k < count; ++k) run();
    CUDA_CHECK(cudaEventRecord(end, stream_of(lane)));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
    shortest = std::min(shortest, static_cast<double>(ms) / count);
  }
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(end));
  return shortest;
}

}  // namespace temper
