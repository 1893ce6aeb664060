#pragma once
// Entry points of the CUDA backend, declared from the one list in kernels/kernels.h. Tensors are in device
// memory, storage fp32 or bf16. The canonical arithmetic of this backend is described in
// kernels/cuda/NUMERICS.md.

#include <span>

#include "kernels/types.h"
#include "src/core/ctx.h"

namespace temper::cuda {
#define KERNEL(name, ...) void name(Ctx& ctx, __VA_ARGS__);
#define SCRATCH_KERNEL KERNEL
#include "kernels/kernels.h"
#undef SCRATCH_KERNEL
#undef KERNEL

class Libraries;  // of a lane: kernels/cuda/libraries.h
/// Between GPUs, which no other backend has: src/ops/peers/peer_exchange.h.
void exchange_small(Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in,
                    const uint32_t* stop);
void exchange_small_sum(Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in,
                        const RankSum& sum, const uint32_t* stop);
void sum_ranks(Lane& lane, const RankSum& sum, std::span<const void* const> parts);
/// Gives a lane of the selected GPU what this backend needs there: library handles, workspaces, caches.
void open_libraries(Lane& lane);
}  // namespace temper::cuda
