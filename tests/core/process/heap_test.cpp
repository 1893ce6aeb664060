// Large blocks that are freed are not kept.

#include "src/core/process/heap.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>

namespace temper {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// Bytes of the heap that belong to no block.
size_t kept_after_freeing(size_t bytes) {
  // volatile: the compiler may leave out blocks that nobody reads
  void* volatile block = std::malloc(bytes);
  void* volatile last = std::malloc(kMiB / 2);  // it keeps the heap from shrinking
  std::memset(block, 1, bytes);
  std::memset(last, 1, kMiB / 2);
  std::free(block);
  const size_t kept = ::mallinfo2().fordblks;
  std::free(last);
  return kept;
}

TEST(Heap, KeepsNothingOfALargeBlockAfterALargerOne) {
  return_large_blocks();
  EXPECT_LT(kept_after_freeing(24 * kMiB), kMiB);
  EXPECT_LT(kept_after_freeing(16 * kMiB), kMiB);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
