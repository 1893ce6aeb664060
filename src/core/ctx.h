#pragma once
// What every op needs and nothing else: where it runs, how many threads, its arena.

#include "src/core/arena.h"

namespace temper {

enum class Device { cpu, cuda };

struct Ctx {
  Arena& arena;
  Device device = Device::cpu;
  int threads = 1;
};

}  // namespace temper
