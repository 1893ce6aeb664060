#include "src/core/edit_distance.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

TEST(EditDistance, CountsInsertionsRemovalsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("steps", "steps"), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("step", "steps"), 1u);
  EXPECT_EQ(edit_distance("steps", "sleps"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("ab", "ba"), 2u);
  EXPECT_EQ(edit_distance("abcdef", "azced"), edit_distance("azced", "abcdef"));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
