#pragma once
// One dispatch for every op: the backend is a property of the context, chosen at run time. On Device::meta
// the kernels of the CPU run with loops that do nothing: what is left is the scratch memory that they ask
// for.

#include "kernels/cpu/cpu.h"

#define DISPATCH_CPU(ctx, name, ...)                                                             \
  do {                                                                                           \
    CHECK((ctx).device != ::temper::Device::cuda, "op " #name " has no kernel for this device"); \
    ::temper::cpu::name(ctx, __VA_ARGS__);                                                       \
  } while (false)

#ifdef TEMPER_CUDA
#include "kernels/cuda/cuda.h"
#define DISPATCH(ctx, name, ...)                \
  do {                                          \
    if ((ctx).device == ::temper::Device::cuda) \
      ::temper::cuda::name(ctx, __VA_ARGS__);   \
    else                                        \
      ::temper::cpu::name(ctx, __VA_ARGS__);    \
  } while (false)
#else
#define DISPATCH DISPATCH_CPU
#endif
