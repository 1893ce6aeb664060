// The driver of the GPUs, from the kernel's file as the two kinds of module write it.

#include "src/core/process/cuda_version.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace temper {
namespace {

std::string driver_of(const std::string& text) {
  const TempDir root;
  std::filesystem::create_directories(root / "proc/driver/nvidia");
  std::ofstream(root / "proc/driver/nvidia/version") << text;
  const std::string found = gpu_driver_version(root.path());
  return found.substr(0, found.find(','));  // on a machine with a GPU the newest CUDA follows
}

TEST(GpuDriver, TheModuleIsNamed) {
  EXPECT_EQ(
      driver_of("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
                "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"),
      "535.104.05");
  EXPECT_EQ(driver_of("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"),
            "580.65.06");
}

TEST(GpuDriver, WithoutAModule) {
  const TempDir root;
  const std::string none = gpu_driver_version(root.path());
  EXPECT_TRUE(none == "none found" || none.starts_with("unknown, for CUDA ")) << none;
  EXPECT_EQ(driver_of("12345 \x1b[2J 5.x\n"), none.substr(0, none.find(',')));
}

TEST(Cuda, TheLibraryIsNamedWhereItIsBuiltIn) {
  EXPECT_EQ(cublas_version() == "not built in", cuda_version() == "not built in");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
