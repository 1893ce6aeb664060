// Progress by piece: long work of one call (memory that is zeroed, a loop of a kernel) is seen to move while
// it goes on, not only at its end.

#include "src/core/process/progress.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/core/device.h"
#include "src/core/parallel.h"

namespace temper {
namespace {

TEST(Progress, MovesWhileMemoryIsZeroed) {
  std::vector<char> memory(size_t{160} << 20, 1);
  const uint64_t before = progress_state().count;
  device::clear(Device::cpu, memory.data(), std::ssize(memory));
  EXPECT_GE(progress_state().count - before, 3u);
  for (const size_t at : {size_t{0}, memory.size() / 2, memory.size() - 1}) EXPECT_EQ(memory[at], 0);
}

TEST(Progress, MovesWithEachPieceOfALoop) {
  ThreadTeam one(1), three(3);
  for (const Threads& threads : {Threads(), Threads(one), Threads(three)}) {
    std::vector<uint64_t> seen;  // by the caller
    const auto piece = [&](int64_t) {
      if (three.index() == 0) seen.push_back(progress_state().count);
    };
    parallel_for(threads, 20, piece);
    seen.push_back(progress_state().count);
    for (size_t i = 1; i < seen.size(); ++i) EXPECT_GT(seen[i], seen[i - 1]) << "piece " << i;
  }
}

TEST(Progress, MovesInALoopInsideOfAPiece) {
  ThreadTeam two(2);
  std::vector<uint64_t> moved(8);
  parallel_for(two, std::ssize(moved), [&](int64_t i) {
    const uint64_t before = progress_state().count;
    parallel_for(two, 4, [](int64_t) {});
    moved[static_cast<size_t>(i)] = progress_state().count - before;
  });
  for (const uint64_t pieces : moved) EXPECT_GE(pieces, 4u);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
