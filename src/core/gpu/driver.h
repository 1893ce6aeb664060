#pragma once
// Functions of the GPU's driver, which is not linked: the program has to start without it. In builds with
// CUDA.

#include <cuda.h>

#include <source_location>

#include "src/core/cuda.h"
#include "src/core/device.h"

namespace temper {

/// As CUDA 12 has it; Exit::environment from an older driver.
template <class F>
void find_in_driver(F& function, const char* name) {
  cudaDriverEntryPointQueryResult found;
  void* address = nullptr;
  CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found));
  if (address == nullptr || found != cudaDriverEntryPointSuccess)
    fail(Exit::environment, {.what = "the GPU driver is too old",
                             .where = device::gpu_name(),
                             .why = fmt::format("it has no {}", name),
                             .fix = "install a driver of CUDA 12 or later"});
  function = reinterpret_cast<F>(address);
}

/// The driver counts its errors as the runtime does.
inline void check_driver(CUresult result, const char* call,
                         const std::source_location& here = std::source_location::current()) {
  if (result != CUDA_SUCCESS)
    fail_cuda(static_cast<cudaError_t>(result), call, here.file_name(), static_cast<int>(here.line()));
}

}  // namespace temper
