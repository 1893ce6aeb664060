// What a shortage of memory says: phase and step, what the memory is for, the bytes.

#include "src/core/process/memory_error.h"

#include "src/core/process/progress.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(MemoryError, NamesPhaseUseAndBytes) {
  const std::pair<MemoryUse, const char*> uses[] = {{MemoryUse::weights, "weights"},
                                                    {MemoryUse::gradients, "gradients"},
                                                    {MemoryUse::optimizer, "optimizer state"},
                                                    {MemoryUse::activations, "activations"},
                                                    {MemoryUse::cache, "KV cache"},
                                                    {MemoryUse::scratch, "scratch"},
                                                    {MemoryUse::any, "memory"}};
  enter_phase({40, "train"}, 3);
  for (const auto& [use, name] : uses) {
    const std::vector<std::string> words = {"out of GPU memory: ",
                                            name,
                                            "phase train of step 3",
                                            "94371840 bytes more are wanted",
                                            "beside 10485760 that are held",
                                            "1048576 of the GPU's 149546860544 are free",
                                            "temper check",
                                            "nvidia-smi"};
    expect_error(Exit::storage, words, name, [&] {
      throw out_of_memory({.use = use,
                           .gpu = true,
                           .wanted = 100 * kMiB,
                           .held = 10 * kMiB,
                           .free = kMiB,
                           .total = 149546860544});
    });
  }
  expect_error(Exit::storage, {"out of host memory: KV cache", "2097152 bytes more are wanted", "ulimit"},
               "the host", [] { throw out_of_memory({.use = MemoryUse::cache, .wanted = 2 * kMiB}); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
