// Random generations of hybrid models on the GPU (tests/rollout/hybrid_engine.h): narrow heads of any size,
// and those that the kernels on tensor cores take.

#include "tests/gpu/gpu_support.h"
#include "tests/rollout/hybrid_engine.h"

namespace temper {
namespace {

ModelConfig wide_config() {
  ModelConfig c = hybrid_config();
  c.hidden_size = 256;
  c.intermediate_size = 512;
  c.num_heads = 4, c.num_kv_heads = 2, c.head_dim = 256;
  c.rotated_dim = 64;
  c.initializer_range = 0.1;
  c.delta.key_heads = 2, c.delta.value_heads = 4;
  c.delta.key_dim = c.delta.value_dim = 128;
  return c;
}

ModelConfig odd_config() {
  ModelConfig c = hybrid_config();
  c.delta.key_heads = 1, c.delta.value_heads = 3;
  c.delta.key_dim = 24, c.delta.value_dim = 20;
  c.delta.taps = 2;
  return c;
}

TEST(GpuHybridEngine, EveryTokenHasTheBitsOfThePackedPass) {
  EXPECT_GT(expect_packed_bits(1, 120, 150, hybrid_config(), Device::cuda) +
                expect_packed_bits(1000, 20, 700, hybrid_config(), Device::cuda),
            50);
}
TEST(GpuHybridEngine, HeadsForTensorCores) {
  EXPECT_GT(expect_packed_bits(2000, 60, 150, wide_config(), Device::cuda) +
                expect_packed_bits(3000, 30, 700, wide_config(), Device::cuda),
            20);
}
TEST(GpuHybridEngine, OddHeads) { expect_packed_bits(4000, 40, 200, odd_config(), Device::cuda); }

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
