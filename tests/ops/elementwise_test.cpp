#include "src/ops/elementwise.h"

#include "tests/support/check_op.h"

namespace temper {
namespace {

Many sum(Ctx& c, DType dtype, const Many& in) {
  const int64_t size = static_cast<int64_t>(in[0].size());
  TestTensor a(c, in[0], dtype, {size}), b(c, in[1], dtype, {size}), y(c, dtype, {size});
  add(c, y, a, b);
  return {y.values()};
}

TEST(Add, TypesRows) {
  const Many in{normal_values(40000, 1), normal_values(40000, 2)};
  check_dtypes("add", in, sum);
  check_rows("add", 400, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    return sum(c, t, {slice_rows(in[0], 100, begin, end), slice_rows(in[1], 100, begin, end)});
  });
}

CPU_TEST(Add, Threads) { check_threads("add", {normal_values(40000, 1), normal_values(40000, 2)}, sum); }

TEST(Add, OneRoundingToEven) {
  TestCtx ctx;
  expect_same_bits("bf16", sum(ctx, DType::bf16, {{1.0, 1.0078125, -0.0}, {0.00390625, 0.00390625, -0.0}})[0],
                   {1.0, 1.015625, -0.0});
}

TEST(Add, InPlace) {
  for (DType dtype : kStorageTypes) {
    TestCtx ctx(2);
    const Many in{round_to(normal_values(33000, 1), dtype), round_to(normal_values(33000, 2), dtype)};
    const Values want = sum(ctx, dtype, in)[0];
    TestTensor a(ctx, in[0], dtype, {33000}), b(ctx, in[1], dtype, {33000});
    add(ctx, a, a, b);
    expect_same_bits("first", a.values(), want);
    TestTensor again(ctx, in[0], dtype, {33000});
    add(ctx, b, again, b);
    expect_same_bits("second", b.values(), want);
  }
}

TEST(Add, ShapesMustAgree) {
  TestCtx ctx;
  TestTensor a(ctx, DType::f32, {4, 3}), b(ctx, DType::f32, {3, 4});
  EXPECT_THROW(add(ctx, a, a, b), Error);
}

/// From the first part to the last, each addition rounded in fp32 (fp64), the sum once in storage.
TEST(SumInOrder, BitsFollowTheDefinition) {
  for (const auto& [parts, count] : {std::pair<int64_t, int64_t>{1, 5}, {2, 33000}, {3, 1}, {8, 777}})
    for (DType dtype : kStorageTypes) {
      const Values x = round_to(normal_values(parts * count, 5), dtype);
      Values want;
      for (int64_t i = 0; i < count; ++i) {
        double sum = x[i];
        for (int64_t r = 1; r < parts; ++r) sum = round_to(sum + x[r * count + i], accumulate_dtype(dtype));
        want.push_back(round_to(sum, dtype));
      }
      TestCtx c(3);
      TestTensor all(c, x, dtype, {parts, count}), y(c, dtype, {count});
      sum_in_order(c, y, all);
      expect_same_bits(fmt::format("{} parts of {} {}", parts, count, dtype_name(dtype)), y.values(), want);
    }
}

/// Where a part lies elsewhere, also where the sum is to be; what is in its place is not read.
TEST(SumInOrder, OwnPartElsewhere) {
  for (const auto& [parts, count] : {std::pair<int64_t, int64_t>{2, 4096}, {3, 33001}, {4, 6}})
    for (DType dtype : kStorageTypes)
      for (int64_t own_part = 0; own_part < parts; ++own_part) {
        TestCtx c(2);
        Values x = round_to(normal_values(parts * count, 6), dtype);
        const Values own = slice_rows(x, count, own_part, own_part + 1);
        TestTensor whole(c, x, dtype, {parts, count}), want(c, dtype, {count}), y(c, own, dtype, {count});
        sum_in_order(c, want, whole);
        std::fill_n(x.begin() + own_part * count, count, std::nan(""));
        TestTensor others(c, x, dtype, {parts, count});
        sum_in_order(c, y, others, y, own_part);
        expect_same_bits(fmt::format("part {} of {}, {}", own_part, parts, dtype_name(dtype)), y.values(),
                         want.values());
      }
}

/// What is there comes last, to the sum of the parts.
TEST(SumInOrder, OntoWhatIsThere) {
  for (const auto& [parts, count] : {std::pair<int64_t, int64_t>{1, 5}, {2, 4096}, {3, 33001}})
    for (DType dtype : kStorageTypes) {
      TestCtx c(2);
      const Values x = normal_values(parts * count, 8), before = round_to(normal_values(count, 9), dtype);
      const DType wide = accumulate_dtype(dtype);
      TestTensor all(c, x, wide, {parts, count}), sum(c, wide, {count}), y(c, before, dtype, {count});
      sum_in_order(c, sum, all);
      Values want = sum.values();
      for (int64_t i = 0; i < count; ++i) want[i] = round_to(round_to(before[i] + want[i], wide), dtype);
      sum_in_order(c, y, all, {}, -1, GradWrite::add);
      expect_same_bits(fmt::format("{} parts onto {}", parts, dtype_name(dtype)), y.values(), want);
    }
}

/// 1e8 + 1 - 1e8 - 1 and the same numbers in other orders: fp32 tells them apart.
TEST(SumInOrder, OrderOfTheParts) {
  const auto sum_of = [](const Values& parts) {
    TestCtx c;
    TestTensor all(c, parts, DType::f32, {static_cast<int64_t>(parts.size()), 1}), y(c, DType::f32, {1});
    sum_in_order(c, y, all);
    return y.values()[0];
  };
  EXPECT_EQ(sum_of({1e8, 1, -1e8, -1}), -1.0);
  EXPECT_EQ(sum_of({1e8, -1e8, 1, -1}), 0.0);
  EXPECT_EQ(sum_of({1, -1e8, 1e8, -1}), -1.0);
  EXPECT_EQ(sum_of({-1e8, 1e8, -1, 3}), 2.0);
}

TEST(Widen, KeepsEveryValue) {
  for (DType dtype : kStorageTypes) {
    TestCtx c(2);
    const Values x = round_to(normal_values(33001, 7), dtype);
    TestTensor narrow(c, x, dtype, {33001}), wide(c, accumulate_dtype(dtype), {33001}),
        half(c, DType::bf16, {33001});
    widen(c, wide, narrow);
    expect_same_bits(dtype_name(dtype), wide.values(), x);
    EXPECT_THROW(widen(c, half, narrow), Error);
  }
}

TEST(SumInOrder, WrongShapesAndTypes) {
  TestCtx c;
  TestTensor x(c, DType::f32, {2, 3}), y(c, DType::f32, {2}), none(c, DType::f32, {0, 3}),
      z(c, DType::f32, {3}), half(c, DType::bf16, {2, 3});
  EXPECT_THROW(sum_in_order(c, y, x), Error);
  EXPECT_THROW(sum_in_order(c, z, none), Error);
  EXPECT_THROW(sum_in_order(c, z, half), Error);
  EXPECT_THROW(sum_in_order(c, z, x, z, 2), Error);
  EXPECT_THROW(sum_in_order(c, z, x, y, 1), Error);
}

TEST(SumInOrder, PartsInFp32AreRoundedOnce) {
  TestCtx c;
  const Values parts{1.0, 1.0, 0x1p-8, 0x1p-8, 0x1p-8, -0.0, 0x1p-20, 0.0, -0.0};
  TestTensor x(c, parts, DType::f32, {3, 3}), y(c, DType::bf16, {3});
  sum_in_order(c, y, x);
  // 1 + 2^-8 + 2^-20 lies above the middle of two bf16 numbers, 1 + 2^-8 on it: that one goes to even.
  expect_same_bits("sum", y.values(), {1.0 + 0x1p-7, 1.0, 0x1p-8});
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
