#include "src/ops/rows.h"

#include "tests/support/check_op.h"

namespace temper {
namespace {

constexpr int64_t kRows = 50;
const std::vector<int32_t> kIndex{3, 49, 0, 17, 18, 5};

TEST(GatherRows, CopiesRows) {
  for (int64_t width : {1, 24, 150, 1000})
    for (DType dtype : kStorageTypes) {
      TestCtx c;
      const Values from = round_to(normal_values(kRows * width, 1), dtype);
      TestTensor x(c, from, dtype, {kRows, width}), index(c, kIndex, {6}), y(c, dtype, {6, width});
      gather_rows(c, y, x, index);
      for (int64_t i = 0; i < 6; ++i)
        expect_same_bits("row", slice_rows(y.values(), width, i, i + 1),
                         slice_rows(from, width, kIndex[i], kIndex[i] + 1));
    }
}

/// At odd and at even places; what is beside them stays.
TEST(CopyColumns, BetweenPlaces) {
  struct Case {
    int64_t rows, to_width, to_column, from_width, from_column, columns;
  };
  for (const Case& k : {Case{1, 1, 0, 1, 0, 1},
                        {7, 24, 8, 16, 0, 16},
                        {50, 64, 32, 96, 64, 32},
                        {3, 10, 3, 9, 2, 5},
                        {300, 512, 256, 256, 0, 256},
                        {5, 8, 0, 8, 8, 0},
                        {0, 8, 0, 8, 0, 8}})
    for (DType dtype : kStorageTypes) {
      TestCtx c(2);
      const Values from = round_to(normal_values(k.rows * k.from_width, 1), dtype);
      Values want = round_to(normal_values(k.rows * k.to_width, 2), dtype);
      TestTensor x(c, from, dtype, {k.rows, k.from_width}), y(c, want, dtype, {k.rows, k.to_width});
      copy_columns(c, y, k.to_column, x, k.from_column, k.columns);
      for (int64_t i = 0; i < k.rows; ++i)
        std::copy_n(from.begin() + i * k.from_width + k.from_column, k.columns,
                    want.begin() + i * k.to_width + k.to_column);
      expect_same_bits(fmt::format("{} rows, {} columns {}", k.rows, k.columns, dtype_name(dtype)),
                       y.values(), want);
    }
}

TEST(CopyColumns, OutsideIsRefused) {
  TestCtx c;
  TestTensor x(c, DType::f32, {4, 3}), y(c, DType::f32, {4, 5}), fewer(c, DType::f32, {3, 5}),
      half(c, DType::bf16, {4, 5});
  EXPECT_THROW(copy_columns(c, y, 3, x, 0, 3), Error);
  EXPECT_THROW(copy_columns(c, y, 0, x, 1, 3), Error);
  EXPECT_THROW(copy_columns(c, y, -1, x, 0, 2), Error);
  EXPECT_THROW(copy_columns(c, fewer, 0, x, 0, 2), Error);
  EXPECT_THROW(copy_columns(c, half, 0, x, 0, 2), Error);
}

/// What lies in the place of the own part is not read.
TEST(JoinColumns, OfAllRanks) {
  struct Case {
    int64_t rows, parts, width;
  };
  for (const Case& k : {Case{1, 1, 1}, {1, 2, 8}, {7, 3, 5}, {300, 2, 256}, {33, 8, 24}, {0, 2, 8}})
    for (DType dtype : kStorageTypes)
      for (int64_t own_part = 0; own_part < k.parts; ++own_part) {
        TestCtx c(2);
        const int64_t block = k.rows * k.width;
        Values from = round_to(normal_values(k.parts * block, 1), dtype), want(from.size());
        for (int64_t i = 0; i < k.rows; ++i)
          for (int64_t r = 0; r < k.parts; ++r)
            std::copy_n(from.begin() + r * block + i * k.width, k.width,
                        want.begin() + (i * k.parts + r) * k.width);
        TestTensor own(c, slice_rows(from, block, own_part, own_part + 1), dtype, {k.rows, k.width});
        std::fill_n(from.begin() + own_part * block, block, std::nan(""));
        TestTensor parts(c, from, dtype, {k.parts * k.rows, k.width}),
            y(c, dtype, {k.rows, k.parts * k.width});
        join_columns(c, y, parts, own, own_part);
        expect_same_bits(
            fmt::format("{} x {}, part {} of {}, {}", k.rows, k.width, own_part, k.parts, dtype_name(dtype)),
            y.values(), want);
      }
}

TEST(JoinColumns, OtherShapesAreRefused) {
  TestCtx c;
  TestTensor y(c, DType::f32, {4, 6}), parts(c, DType::f32, {8, 3}), own(c, DType::f32, {4, 3}),
      fewer(c, DType::f32, {3, 3}), narrow(c, DType::f32, {4, 4}), half(c, DType::bf16, {4, 3});
  EXPECT_THROW(join_columns(c, y, parts, own, 2), Error);
  EXPECT_THROW(join_columns(c, y, parts, own, -1), Error);
  EXPECT_THROW(join_columns(c, y, parts, fewer, 0), Error);
  EXPECT_THROW(join_columns(c, y, parts, narrow, 0), Error);
  EXPECT_THROW(join_columns(c, y, own, own, 0), Error);
  EXPECT_THROW(join_columns(c, y, parts, half, 0), Error);
}

/// Rows that nothing goes to are zeros.
TEST(ScatterRows, UndoesAGather) {
  for (int64_t width : {1, 5, 24, 150, 1000})
    for (DType dtype : kStorageTypes) {
      TestCtx c;
      const Values from = round_to(normal_values(6 * width, 1), dtype);
      TestTensor x(c, from, dtype, {6, width}), index(c, kIndex, {6}), y(c, dtype, {kRows, width});
      scatter_rows(c, y, x, index);
      Values want(kRows * width, 0.0);
      for (int64_t i = 0; i < 6; ++i)
        std::copy_n(from.begin() + i * width, width, want.begin() + kIndex[i] * width);
      expect_same_bits("y", y.values(), want);
    }
}

TEST(ScatterRows, NoRows) {
  TestCtx c;
  TestTensor x(c, DType::f32, {0, 5}), index(c, DType::i32, {0}), y(c, DType::f32, {3, 5});
  scatter_rows(c, y, x, index);
  expect_same_bits("y", y.values(), Values(15, 0.0));
}

CPU_TEST(Rows, IndicesOutsideAreRefused) {
  TestCtx c;
  TestTensor x(c, DType::f32, {4, 3}), y(c, DType::f32, {1, 3});
  for (int32_t wrong : {-1, 4}) {
    TestTensor index(c, std::vector<int32_t>{wrong}, {1});
    EXPECT_THROW(gather_rows(c, y, x, index), Error);
    EXPECT_THROW(scatter_rows(c, x, y, index), Error);
  }
}

TEST(Rows, WrongShapes) {
  TestCtx c;
  TestTensor x(c, DType::f32, {4, 3}), y(c, DType::f32, {2, 4}), index(c, std::vector<int32_t>{1, 2}, {2});
  EXPECT_THROW(gather_rows(c, y, x, index), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
