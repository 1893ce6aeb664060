#pragma once
// Dispatch of the ops that hybrid models have beside those of all: the CPU alone has kernels for them.

#include "kernels/cpu/hybrid.h"
#include "src/core/check.h"

#define DISPATCH_HYBRID(ctx, name, ...)                                  \
  do {                                                                   \
    CHECK(!like_gpu((ctx).device), "{} has no kernel for a GPU", #name); \
    ::temper::cpu::name(ctx, __VA_ARGS__);                               \
  } while (false)
