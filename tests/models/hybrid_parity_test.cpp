// Every folder of tests/golden/hybrid/models against transformers in fp64, and that neither what a sequence
// is packed with nor what is computed again changes a bit.

#include "tests/models/hybrid_parity.h"

#include <tuple>

namespace temper {
namespace {

/// In fp64 both are the same function but for the angles of rope, which are of fp32; in fp32 as far as it
/// goes.
TEST_P(HybridParity, LogprobsAndGradients) {
  for (const auto& [dtype, logprob, gradient] :
       {std::tuple{DType::f64, 1e-7, 1e-7}, {DType::f32, 2e-5, 1e-4}})
    expect_golden(dtype, logprob, gradient);
}

TEST_P(HybridParity, PackedSequencesHaveTheBitsOfEachAlone) { expect_packed_bits_of_each_alone(); }

INSTANTIATE_TEST_SUITE_P(Models, HybridParity, ::testing::ValuesIn(model_names()), test_name);

/// What backward computes again is what forward had.
TEST(HybridRecompute, GradientsHaveTheSameBits) {
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  const std::string folder = std::string(kModels) + "/text-tied-interval2";
  const GoldenFile golden(folder + "/golden.safetensors");
  const std::vector<Trajectory> sequences = sequences_of(golden);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto model = load_model(folder, dtype, kContext);
    std::vector<std::vector<double>> all;
    for (const RecomputePlan plan :
         {RecomputePlan{}, RecomputePlan{Recompute::selective}, RecomputePlan{Recompute::full},
          RecomputePlan{Recompute::full, false, 3}}) {
      target_gradients(c, *model, sequences, golden.numbers("weights"), plan);
      std::vector<double>& gradients = all.emplace_back();
      for (const Parameter& p : model->parameters().list())
        for (const double x : to_host<double>(c, p.grad)) gradients.push_back(x);
    }
    for (size_t i = 1; i < all.size(); ++i)
      EXPECT_EQ(all[i] == all[0], true) << dtype_name(dtype) << " " << i;
  }
}

TEST(HybridModels, AreAllThere) { EXPECT_GE(model_names().size(), 12u); }

/// What decides how long a state lasts is not rounded in a model of bf16.
TEST(HybridModels, WideParametersAreWideInANarrowStore) {
  const std::string folder = std::string(kModels) + "/vision-tied-bf16";
  const auto narrow = load_model(folder, DType::bf16, kContext),
             exact = load_model(folder, DType::f32, kContext);
  Backend backend(Device::cpu);
  size_t wide = 0;
  for (size_t i = 0; i < narrow->parameters().list().size(); ++i) {
    const Parameter &p = narrow->parameters().list()[i], &q = exact->parameters().list()[i];
    EXPECT_EQ(p.value.dtype, p.spec.wide ? DType::f32 : DType::bf16) << p.spec.name;
    if (!p.spec.wide) continue;
    ++wide;
    EXPECT_EQ(to_host<double>(backend.ctx(), p.value), to_host<double>(backend.ctx(), q.value))
        << p.spec.name;
  }
  EXPECT_EQ(wide, 2u);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
