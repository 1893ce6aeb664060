#include "src/ops/adapters/adapter.h"

#include "tests/support/check_op.h"

namespace temper {
namespace {

/// q and v of q, k, v with 6, 3 and 3 outputs.
constexpr AdapterBlocks kBlocks{.count = 2, .to = {0, 9}, .from = {0, 6}, .rows = {6, 3}};
constexpr int64_t kOutputs = 12, kOwn = 9, kRank = 5;

TEST(AdapterWeights, AreBlockDiagonal) {
  for (const DType dtype : kStorageTypes) {
    TestCtx c(2);
    const Values b = round_to(normal_values(kOwn * kRank, 1), dtype);
    TestTensor own(c, b, dtype, {kOwn, kRank}), w(c, dtype, {kOutputs, 2 * kRank});
    adapter_weights(c, w, own, kBlocks);
    Values want(kOutputs * 2 * kRank, 0.0);
    for (int i = 0; i < kBlocks.count; ++i)
      for (int64_t j = 0; j < kBlocks.rows[i]; ++j)
        for (int64_t k = 0; k < kRank; ++k)
          want[static_cast<size_t>(((kBlocks.to[i] + j) * 2 + i) * kRank + k)] =
              b[static_cast<size_t>((kBlocks.from[i] + j) * kRank + k)];
    expect_same_bits("weights", w.values(), want);
  }
}

TEST(AdapterGradient, TakesTheBlocks) {
  TestCtx c(2);
  const Values dw = round_to(normal_values(kOutputs * 2 * kRank, 2), DType::f32),
               before = round_to(normal_values(kOwn * kRank, 3), DType::f32);
  for (const GradWrite write : {GradWrite::first, GradWrite::add}) {
    TestTensor whole(c, dw, DType::f32, {kOutputs, 2 * kRank}), db(c, before, DType::f32, {kOwn, kRank});
    adapter_gradient(c, db, whole, 0.3, kBlocks, write);
    Values want;
    const double scale = round_to(0.3, DType::f32);
    for (int i = 0; i < kBlocks.count; ++i)
      for (int64_t j = 0; j < kBlocks.rows[i]; ++j)
        for (int64_t k = 0; k < kRank; ++k) {
          const double term = round_to(
              scale * dw[static_cast<size_t>(((kBlocks.to[i] + j) * 2 + i) * kRank + k)], DType::f32);
          const double held = before[static_cast<size_t>((kBlocks.from[i] + j) * kRank + k)];
          want.push_back(write == GradWrite::add ? round_to(held + term, DType::f32) : term);
        }
    expect_same_bits("gradient", db.values(), want);
  }
}

/// Outputs are rounded once; not so in a type that is its own accumulate type.
TEST(AddScaled, OneFusedStepOneRounding) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t count : {1, 7, 33000}) {
      TestCtx c(3);
      const Values y = round_to(normal_values(count, 4), dtype),
                   z = round_to(normal_values(count, 5), DType::f32);
      const float scale = 0.7f;
      TestTensor sum(c, y, dtype, {count}), product(c, z, DType::f32, {count}), scaled(c, dtype, {count});
      add_scaled(c, sum, product, 0.7);
      round_scaled(c, scaled, product, 0.7);
      Values want_sum, want_scaled;
      for (size_t i = 0; i < y.size(); ++i) {
        const auto zi = static_cast<float>(z[i]);
        want_sum.push_back(round_to(std::fma(scale, zi, static_cast<float>(y[i])), dtype));
        want_scaled.push_back(round_to(static_cast<double>(scale * zi), dtype));
      }
      expect_same_bits("added", sum.values(), want_sum);
      expect_same_bits("scaled", scaled.values(), want_scaled);
    }
}

TEST(Adapter, ShapesAndTypesMustAgree) {
  TestCtx c;
  TestTensor b(c, DType::f32, {kOwn, kRank}), w(c, DType::f32, {kOutputs, 2 * kRank}),
      narrow(c, DType::f32, {kOutputs, kRank}), half(c, DType::bf16, {kOutputs, kRank});
  EXPECT_THROW(adapter_weights(c, narrow, b, kBlocks), Error);
  AdapterBlocks beyond = kBlocks;
  beyond.to[1] = 10;
  EXPECT_THROW(adapter_weights(c, w, b, beyond), Error);
  EXPECT_THROW(add_scaled(c, narrow, half, 1), Error);
  EXPECT_THROW(round_scaled(c, w, narrow, 1), Error);
}

CPU_TEST(AddScaled, Threads) {
  check_threads("add_scaled", {normal_values(40000, 1), normal_values(40000, 2)},
                [](Ctx& c, DType dtype, const Many& in) {
                  TestTensor y(c, in[0], dtype, {40000}), z(c, in[1], accumulate_dtype(dtype), {40000});
                  add_scaled(c, y, z, 0.3);
                  return Many{y.values()};
                });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
