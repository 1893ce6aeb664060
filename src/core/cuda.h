#pragma once
// The CUDA runtime for kernels/cuda and core/device.cpp alone: error check and stream.

#include <cuda_runtime.h>

#include "src/core/check.h"

namespace temper {

/// All work of a process. A constant handle, not the legacy stream, so that it can be captured into graphs.
inline cudaStream_t gpu_stream() { return cudaStreamPerThread; }

[[noreturn]] void fail_cuda(cudaError_t error, const char* call, const char* file, int line);

}  // namespace temper

#define CUDA_CHECK(call)                                                               \
  do {                                                                                 \
    if (const cudaError_t cuda_error = (call); cuda_error != cudaSuccess) [[unlikely]] \
      ::temper::fail_cuda(cuda_error, #call, __FILE__, __LINE__);                      \
  } while (false)
