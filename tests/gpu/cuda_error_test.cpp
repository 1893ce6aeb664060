// Which errors of CUDA are the machine's, and what a run makes of them; more memory than a GPU has.

#include "src/core/arena.h"
#include "src/core/cuda.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

void fail_with(cudaError_t error) { fail_cuda(error, "aCall()", "a_file.cpp", 7); }

TEST(CudaErrors, AGpuThatFailedIsLost) {
  for (const cudaError_t error :
       {cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorContained, cudaErrorUnknown}) {
    EXPECT_THROW(fail_with(error), DeviceLost) << cudaGetErrorName(error);
    expect_error(Exit::environment, {cudaGetErrorName(error), "a_file.cpp:7, aCall()", "nvidia-smi", "Xid"},
                 "lost", [&] { fail_with(error); });
  }
}

TEST(CudaErrors, OthersAreNot) {
  const std::pair<cudaError_t, Exit> errors[] = {{cudaErrorInvalidValue, Exit::internal},
                                                 {cudaErrorIllegalAddress, Exit::internal},
                                                 {cudaErrorMemoryAllocation, Exit::storage},
                                                 {cudaErrorInsufficientDriver, Exit::environment},
                                                 {cudaErrorDevicesUnavailable, Exit::environment}};
  for (const auto& [error, code] : errors) {
    try {
      fail_with(error);
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
      EXPECT_EQ(dynamic_cast<const DeviceLost*>(&e), nullptr) << e.what();
    }
  }
}

/// The last one: what the GPU gave stays with this process.
TEST(CudaErrors, MoreMemoryThanThereIs) {
  device::select_gpu(device::find_gpus().gpus.at(0));
  const int64_t total = device::gpu_memory().total;
  Arena arena(Device::cuda, MemoryUse::activations);
  expect_error(Exit::storage,
               {"out of GPU memory: activations", "phase start", "bytes more are wanted beside",
                fmt::format("of the GPU's {} are free", total), "`temper check` shows what a rank needs"},
               "twice the card", [&] { arena.allocate(2 * total); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
