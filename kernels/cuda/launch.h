#pragma once
// What every .cu file of this folder needs: storage types, vector access, launches with their error check.

#include <cuda_bf16.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/canonical.cuh"
#include "kernels/cuda/libraries.h"
#include "src/core/cuda.h"

namespace temper::cuda {

/// f(float{}) or f(__nv_bfloat16{}).
template <class F>
void dispatch_gpu_storage(DType t, F&& f) {
  CHECK(t == DType::f32 || t == DType::bf16, "no GPU kernels for {} tensors", dtype_name(t));
  if (t == DType::f32)
    f(float{});
  else
    f(__nv_bfloat16{});
}
template <class S>
const S* data_of(const CTensor& t) {
  return static_cast<const S*>(t.data);
}
template <class S>
S* data_of(const Tensor& t) {
  return static_cast<S*>(t.raw());
}

inline int blocks_for(int64_t count, int64_t per_block) {
  const int64_t blocks = (count + per_block - 1) / per_block;
  CHECK(blocks <= 0x7fffffff, "{} blocks of one launch", blocks);
  return static_cast<int>(blocks);
}

// Kernels overlap by programmatic dependent launch: the next one may take its place on the chip while this
// one runs, and waits where it says so until this one has finished and its writes are visible. Before that it
// may read weights, tables, and what the host copied for the step (a copy orders all kernels around it):
// whoever writes such data with a kernel calls Lane::order, and its successor is launched without the
// overlap.
TEMPER_DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;"); }
TEMPER_DEVICE void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// First statement of a kernel that does nothing before it waits.
TEMPER_DEVICE void begin_kernel() {
  launch_dependents();
  wait_for_previous_kernel();
}

/// The kernel on a lane; nothing for an empty grid.
template <class... Parameters, class... Arguments>
void launch(Lane& lane, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
            Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute overlap;
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream_of(lane);
  config.attrs = &overlap;
  config.numAttrs = lane.take_order() ? 0 : 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}
/// Dynamic shared memory above 48 KiB has to be asked for.
template <class Kernel>
void allow_shared_memory(Kernel kernel, int bytes) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

/// Neighbouring elements as they are stored, eight where nothing else is said; `whole` = all of them exist
/// and are aligned to 16 bytes (8, where they are no more).
inline constexpr int kGroup = 8;
template <class S, int N = kGroup>
struct alignas(N * sizeof(S) < 16 ? 8 : 16) RawGroup {
  S at[N];
};
template <class S, int N>
TEMPER_DEVICE void copy_whole(S* to, const S* from) {
  if constexpr (N * sizeof(S) == 8)
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(from);
  else
#pragma unroll
    for (int i = 0; i < static_cast<int>(N * sizeof(S) / 16); ++i)
      *(reinterpret_cast<uint4*>(to) + i) = *(reinterpret_cast<const uint4*>(from) + i);
}
/// Zeros beyond `count`.
template <class S, int N>
TEMPER_DEVICE void load_raw(RawGroup<S, N>& raw, const S* p, int count, bool whole) {
  if (whole) return copy_whole<S, N>(raw.at, p);
#pragma unroll
  for (int i = 0; i < N; ++i) raw.at[i] = i < count ? p[i] : canonical::store<S>(0.f);
}
template <class S, int N>
TEMPER_DEVICE void store_raw(S* p, const RawGroup<S, N>& raw, int count, bool whole) {
  if (whole) return copy_whole<S, N>(p, raw.at);
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count) p[i] = raw.at[i];
}
/// The same as floats.
template <class S, int N>
TEMPER_DEVICE void load_group(float (&v)[N], const S* p, int count, bool whole) {
  RawGroup<S, N> raw;
  load_raw(raw, p, count, whole);
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = canonical::load(raw.at[i]);
}
template <class S, int N>
TEMPER_DEVICE void store_group(S* p, const float (&v)[N], int count, bool whole) {
  RawGroup<S, N> raw;
#pragma unroll
  for (int i = 0; i < N; ++i) raw.at[i] = canonical::store<S>(v[i]);
  store_raw(p, raw, count, whole);
}

}  // namespace temper::cuda
