// Shapes of fast kernels: each is compared once, before it is used, and one whose bits differ never is.

#include "kernels/cuda/tested_shapes.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace temper::cuda {
namespace {

using Shapes = TestedShapes<std::pair<int, int>>;

struct Asked {
  bool used;
  int trials;
  std::string said;
};

/// What the shape gets, and what was said of it.
Asked ask(Shapes& shapes, std::pair<int, int> shape, bool same_bits) {
  int trials = 0;
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const bool used = shapes.may_use(
      shape, [] { return "kernels of that shape"; }, [&] { return ++trials, same_bits; });
  return {used, trials, ::testing::internal::GetCapturedStderr() + ::testing::internal::GetCapturedStdout()};
}

TEST(TestedShapes, EachIsComparedOnce) {
  Shapes shapes;
  for (const int shape : {1, 2}) {
    const Asked first = ask(shapes, {shape, 1}, true), again = ask(shapes, {shape, 1}, false);
    EXPECT_TRUE(first.used && again.used);
    EXPECT_EQ(first.trials, 1);
    EXPECT_EQ(again.trials, 0) << "what has passed is not compared again";
    EXPECT_EQ(first.said + again.said, "");
  }
}

TEST(TestedShapes, OneThatDiffersIsNeverUsedAndIsToldOnce) {
  Shapes shapes;
  const Asked first = ask(shapes, {4, 1}, false), again = ask(shapes, {4, 1}, true),
              other = ask(shapes, {4, 2}, true);
  EXPECT_FALSE(first.used || again.used);
  EXPECT_NE(first.said.find("kernels of that shape are not used"), std::string::npos) << first.said;
  EXPECT_EQ(again.trials, 0);
  EXPECT_EQ(again.said, "");
  EXPECT_TRUE(other.used);
}

/// A trial that fails (no memory) has shown nothing.
TEST(TestedShapes, AnExceptionIsNoResult) {
  Shapes shapes;
  const auto name = [] { return "it"; };
  EXPECT_THROW(shapes.may_use({1, 1}, name, []() -> bool { throw std::runtime_error("no memory"); }),
               std::runtime_error);
  EXPECT_TRUE(ask(shapes, {1, 1}, true).used);
}

}  // namespace
}  // namespace temper::cuda

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
