// What a shortage of memory says: phase and step, what the memory is for, the bytes, the keys of that use.

#include "src/core/process/memory_error.h"

#include "src/core/process/progress.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(MemoryError, NamesPhaseUseBytesAndKeys) {
  const std::pair<MemoryUse, std::vector<std::string>> uses[] = {
      {MemoryUse::weights, {"weights", "run.dtype", "roles.reference.offload"}},
      {MemoryUse::gradients, {"gradients", "train.offload.optimizer", "train.recompute.granularity"}},
      {MemoryUse::optimizer, {"optimizer state", "optimizer.state", "optimizer.master"}},
      {MemoryUse::activations,
       {"activations", "train.recompute.granularity", "train.max_tokens_per_microbatch"}},
      {MemoryUse::cache, {"KV cache", "rollout.kv_memory"}},
      {MemoryUse::scratch, {"scratch", "train.max_tokens_per_microbatch", "rollout.prefill_chunk_tokens"}},
      {MemoryUse::any, {"memory", "train.max_tokens_per_microbatch", "rollout.kv_memory"}}};
  enter_phase({40, "train"}, 3);
  for (auto [use, words] : uses) {
    const std::string label = words.front();
    for (const char* word : {"out of GPU memory", "phase train of step 3", "94371840 bytes more are wanted",
                             "beside 10485760 that are held", "1048576 of the GPU's 149546860544 are free",
                             "temper check", "nvidia-smi"})
      words.emplace_back(word);
    expect_error(Exit::storage, words, label, [&] {
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
