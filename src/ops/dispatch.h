#pragma once
// One dispatch for every op: the backend is a property of the context, chosen at run time. On a device that
// only counts memory nothing is computed: for the CPU its kernels run with loops that do nothing, and what is
// left is the scratch memory that they ask for; for a GPU that memory is known without its kernels, so that
// any build can plan for it.

#include "kernels/cpu/cpu.h"
#include "kernels/planned/planned.h"

#ifdef TEMPER_CUDA
#include "kernels/cuda/cuda.h"
#define DISPATCH_CUDA(ctx, name, ...) ::temper::cuda::name(ctx, __VA_ARGS__)
#else
#define DISPATCH_CUDA(ctx, name, ...) CHECK(false, "this build has no CUDA backend")
#endif

namespace temper {
/// The share of a table w that was named, or w as the whole vocabulary.
inline VocabularyShare resolved(const VocabularyShare& share, const CTensor& w) {
  if (share.ids == 0) return {0, w.dim(0)};
  CHECK(share.first >= 0 && share.first + w.dim(0) <= share.ids, "rows {} to {} of a vocabulary of {}",
        share.first, share.first + w.dim(0), share.ids);
  return share;
}
}  // namespace temper

#define DISPATCH(ctx, name, ...)                          \
  do {                                                    \
    if ((ctx).device == ::temper::Device::cuda)           \
      DISPATCH_CUDA(ctx, name, __VA_ARGS__);              \
    else if ((ctx).device == ::temper::Device::meta_cuda) \
      ::temper::planned::name(ctx, __VA_ARGS__);          \
    else                                                  \
      ::temper::cpu::name(ctx, __VA_ARGS__);              \
  } while (false)
