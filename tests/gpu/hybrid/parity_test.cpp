// Every folder of tests/golden/hybrid/models on the GPU in fp32 against transformers; packed sequences have
// the bits of each alone.

#include "tests/gpu/gpu_support.h"
#include "tests/models/hybrid_parity.h"

namespace temper {
namespace {

class GpuHybridParity : public HybridParity {
 protected:
  GpuHybridParity() : HybridParity(Device::cuda) {}
};

TEST_P(GpuHybridParity, LogprobsAndGradients) { expect_golden(DType::f32, 2e-5, 1e-4); }
TEST_P(GpuHybridParity, PackedSequencesHaveTheBitsOfEachAlone) { expect_packed_bits_of_each_alone(); }

INSTANTIATE_TEST_SUITE_P(Models, GpuHybridParity, ::testing::ValuesIn(model_names()), test_name);

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
