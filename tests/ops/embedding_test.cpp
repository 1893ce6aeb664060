#include "src/ops/embedding.h"

#include "tests/support/check_op.h"

namespace temper {
namespace {

constexpr int64_t kVocabulary = 11, kWidth = 150;

Many forward(Ctx& c, DType dtype, const Values& table, const std::vector<int32_t>& ids,
             int64_t width = kWidth) {
  const int64_t rows = static_cast<int64_t>(ids.size());
  TestTensor w(c, table, dtype, {kVocabulary, width}), tokens(c, ids, {rows}), y(c, dtype, {rows, width});
  embedding_forward(c, y, tokens, w);
  return {y.values()};
}

Values backward(Ctx& c, DType dtype, const Values& upstream, const std::vector<int32_t>& ids, int64_t skip,
                double before = 0.0) {
  const int64_t rows = static_cast<int64_t>(ids.size());
  TestTensor dy(c, upstream, dtype, {rows, kWidth}), tokens(c, ids, {rows});
  TestTensor dw(c, Values(kVocabulary * kWidth, before), accumulate_dtype(dtype), {kVocabulary, kWidth});
  embedding_backward(c, dw, dy, tokens, skip);
  return dw.values();
}

TEST(Embedding, CopiesRows) {
  for (int64_t width : {int64_t{1}, int64_t{24}, kWidth, int64_t{1000}})
    for (DType dtype : kStorageTypes) {
      TestCtx ctx(2);
      const Values table = round_to(normal_values(kVocabulary * width, 1), dtype);
      const std::vector<int32_t> ids = random_ids(400, kVocabulary, 2);
      const Values got = forward(ctx, dtype, table, ids, width)[0];
      for (int64_t t = 0; t < 400; ++t)
        expect_same_bits("row", slice_rows(got, width, t, t + 1),
                         slice_rows(table, width, ids[t], ids[t] + 1));
    }
}

CPU_TEST(Embedding, Gradient) {
  const std::vector<int32_t> ids{3, 0, 3, 10, 3};
  check_gradient(
      "embedding", {normal_values(kVocabulary * kWidth, 1)},
      [&](Ctx& c, DType t, const Many& in) { return forward(c, t, in[0], ids); },
      [&](Ctx& c, DType t, const Many&, const Many& douts) {
        return Many{backward(c, t, douts[0], ids, -1)};
      });
}

/// In ascending order of rows, on top of what is there, without the skipped id, for any number of threads.
CPU_TEST(Embedding, BackwardSumsInOrder) {
  const std::vector<int32_t> ids = random_ids(300, kVocabulary, 3);
  const Values upstream = round_to(normal_values(300 * kWidth, 4), DType::bf16);
  std::vector<float> sums(kVocabulary * kWidth, 0.75f);
  for (size_t t = 0; t < ids.size(); ++t)
    for (int64_t i = 0; i < kWidth && ids[t] != 4; ++i)
      sums[ids[t] * kWidth + i] += static_cast<float>(upstream[t * kWidth + i]);
  const Values want(sums.begin(), sums.end());
  for (int threads : {1, 2, 3})
    for (DType dtype : {DType::f32, DType::bf16}) {
      TestCtx ctx(threads);
      expect_same_bits("dw", backward(ctx, dtype, upstream, ids, 4, 0.75), want);
    }
}

CPU_TEST(Embedding, IdsOutsideTheTableAreRefused) {
  TestCtx ctx;
  const Values table(kVocabulary * kWidth, 0.0);
  EXPECT_THROW(forward(ctx, DType::f32, table, {0, kVocabulary}), Error);
  EXPECT_THROW(forward(ctx, DType::f32, table, {-1}), Error);
  EXPECT_THROW(backward(ctx, DType::f32, Values(kWidth, 1.0), {-1}, -1), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
