#pragma once
// What is said when there is no memory: for what, in which phase, how much, and the keys that make it less.

#include <cstdint>
#include <string>

#include "src/core/check.h"

namespace temper {

/// What a region of memory is for.
enum class MemoryUse { any, weights, gradients, optimizer, activations, cache, scratch };

struct MemoryShortage {
  MemoryUse use = MemoryUse::any;
  bool gpu = false;
  int64_t wanted = 0;           // bytes of the region, those that it holds included
  int64_t held = 0;             // by it so far
  int64_t free = 0, total = 0;  // of the GPU
};

/// Exit::storage, with the phase that this process is in (core/process/progress.h).
Error out_of_memory(const MemoryShortage& shortage);

}  // namespace temper
