#pragma once
// Entry points of the CUDA backend, declared from the one list in kernels/kernels.h. Tensors are in device
// memory, storage fp32 or bf16. The canonical arithmetic of this backend is described in
// kernels/cuda/NUMERICS.md.

#include <memory>
#include <span>

#include "kernels/types.h"
#include "src/core/ctx.h"

namespace temper::cuda {
#define KERNEL(name, ...) void name(Ctx& ctx, __VA_ARGS__);
#define CPU_KERNEL(...)
#include "kernels/kernels.h"
#undef CPU_KERNEL
#undef KERNEL

struct ReleaseLibraries {
  void operator()(Libraries* p) const;
};
/// Library handles and caches of the selected GPU.
std::unique_ptr<Libraries, ReleaseLibraries> open_libraries();
}  // namespace temper::cuda
