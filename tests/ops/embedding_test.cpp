#include "src/ops/embedding.h"

#include "src/ops/elementwise.h"
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
                double before = 0.0, int64_t width = kWidth) {
  const int64_t rows = static_cast<int64_t>(ids.size());
  TestTensor dy(c, upstream, dtype, {rows, width}), tokens(c, ids, {rows});
  TestTensor dw(c, Values(static_cast<size_t>(kVocabulary * width), before), accumulate_dtype(dtype),
                {kVocabulary, width});
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

/// A vocabulary in three pieces, one of them empty: rows of other pieces are -0, so that sums over the pieces
/// are the rows themselves, -0 among them; gradients are the rows of the whole one.
TEST(Embedding, SharesOfTheVocabularyAddUpToTheWhole) {
  for (int64_t width : {int64_t{3}, int64_t{24}, kWidth})
    for (DType dtype : {DType::f32, DType::bf16}) {
      TestCtx c;
      Values table = round_to(normal_values(kVocabulary * width, 1), dtype);
      table[static_cast<size_t>(2 * width)] = -0.0;
      std::vector<int32_t> ids = random_ids(60, kVocabulary, 2);
      ids[0] = 2;
      const Values want = forward(c, dtype, table, ids, width)[0];
      const Values upstream = round_to(normal_values(60 * width, 4), dtype);
      const Values whole = backward(c, dtype, upstream, ids, 5, 0.5, width);
      Values parts;
      for (const auto& [first, end] :
           {std::pair<int64_t, int64_t>{0, 4}, {4, kVocabulary}, {kVocabulary, kVocabulary}}) {
        const VocabularyShare share{first, kVocabulary};
        TestTensor w(c, slice_rows(table, width, first, end), dtype, {end - first, width}),
            tokens(c, ids, {60}), y(c, dtype, {60, width}), dy(c, upstream, dtype, {60, width}),
            dw(c, Values(static_cast<size_t>((end - first) * width), 0.5), DType::f32, {end - first, width});
        embedding_forward(c, y, tokens, w, share);
        for (double v : y.values()) parts.push_back(v);
        embedding_backward(c, dw, dy, tokens, 5, share);
        expect_same_bits("gradient", dw.values(), slice_rows(whole, width, first, end));
      }
      TestTensor x(c, parts, dtype, {3, 60 * width}), sum(c, dtype, {60 * width});
      sum_in_order(c, sum, x);
      expect_same_bits("sum", sum.values(), want);
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
void expect_sums_in_order(const std::vector<int32_t>& ids, int64_t skip, int64_t width = kWidth) {
  const auto rows = static_cast<int64_t>(ids.size());
  const Values upstream = round_to(normal_values(rows * width, 4), DType::bf16);
  std::vector<float> sums(kVocabulary * width, 0.75f);
  for (size_t t = 0; t < ids.size(); ++t)
    for (int64_t i = 0; i < width && ids[t] != skip; ++i)
      sums[ids[t] * width + i] += static_cast<float>(upstream[t * width + i]);
  const Values want(sums.begin(), sums.end());
  for (int threads : {1, 2, 3})
    for (DType dtype : {DType::f32, DType::bf16}) {
      TestCtx ctx(threads);
      expect_same_bits(fmt::format("dw of {} rows of {}", rows, width),
                       backward(ctx, dtype, upstream, ids, skip, 0.75, width), want);
    }
}

TEST(Embedding, BackwardSumsInOrder) {
  for (int64_t width : {int64_t{1}, int64_t{5}, kWidth, int64_t{1024}})
    expect_sums_in_order(random_ids(300, kVocabulary, 3), 4, width);
  for (int64_t rows : {1, 8, 9}) expect_sums_in_order(random_ids(rows, kVocabulary, 5), -1);
}

TEST(Embedding, BackwardOfOneTokenManyTimes) {
  std::vector<int32_t> ids(5000, 7);
  expect_sums_in_order(ids, -1, 24);
  expect_sums_in_order(ids, 7, 24);
  ids[0] = ids[2500] = ids[4999] = 10;
  expect_sums_in_order(ids, -1, 24);
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
