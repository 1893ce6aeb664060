#include "src/core/process/heap.h"

#include <malloc.h>

namespace temper {

void return_large_blocks() {
  constexpr int kLargeBytes = 1 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kLargeBytes);
}

}  // namespace temper
