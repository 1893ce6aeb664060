// NCCL is opened at run time: the program starts, and says what it found, with and without it. What it
// carries is tested where there is a GPU (tests/gpu/nccl_test.cpp).

#include <gtest/gtest.h>

#include <regex>

#include "src/comm/gpu/nccl_transport.h"
#include "src/core/process/cuda_version.h"

namespace temper {
namespace {

TEST(Nccl, SaysWhatItFound) {
  const std::string version = nccl_version();
  if (cuda_version() == "not built in") {
    EXPECT_EQ(version, "not built in");
    EXPECT_FALSE(nccl_is_here());
  } else if (nccl_is_here()) {
    EXPECT_TRUE(std::regex_match(version, std::regex("2\\.[0-9]+\\.[0-9]+"))) << version;
  } else {
    EXPECT_EQ(version, "none found");
  }
}

TEST(Nccl, IsNotUsedWithoutIt) {
  if (nccl_is_here()) GTEST_SKIP() << "NCCL is here";
  EXPECT_ANY_THROW(make_nccl_id());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
