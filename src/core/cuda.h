#pragma once
// The CUDA runtime for kernels/cuda and the device files of core alone: error check and stream.

#include <cuda_runtime.h>

#include "src/core/check.h"
#include "src/core/lane.h"

namespace temper {

inline cudaStream_t stream_of(const Lane& lane) { return static_cast<cudaStream_t>(lane.stream()); }

/// DeviceLost where the GPU is to blame.
[[noreturn]] void fail_cuda(cudaError_t error, const char* call, const char* file, int line);

}  // namespace temper

#define CUDA_CHECK(call)                                                               \
  do {                                                                                 \
    if (const cudaError_t cuda_error = (call); cuda_error != cudaSuccess) [[unlikely]] \
      ::temper::fail_cuda(cuda_error, #call, __FILE__, __LINE__);                      \
  } while (false)
