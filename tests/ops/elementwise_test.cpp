#include "src/ops/elementwise.h"

#include "tests/support/check_op.h"

namespace temper {
namespace {

Many sum(Ctx& c, DType dtype, const Many& in) {
  const int64_t size = static_cast<int64_t>(in[0].size());
  TestTensor a(in[0], dtype, {size}), b(in[1], dtype, {size}), y(dtype, {size});
  add(c, y, a, b);
  return {y.values()};
}

TEST(Add, TypesThreadsRows) {
  const Many in{normal_values(40000, 1), normal_values(40000, 2)};
  check_dtypes("add", in, sum);
  check_threads("add", in, sum);
  check_rows("add", 400, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    return sum(c, t, {slice_rows(in[0], 100, begin, end), slice_rows(in[1], 100, begin, end)});
  });
}

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
    TestTensor a(in[0], dtype, {33000}), b(in[1], dtype, {33000});
    add(ctx, a, a, b);
    expect_same_bits("first", a.values(), want);
    TestTensor again(in[0], dtype, {33000});
    add(ctx, b, again, b);
    expect_same_bits("second", b.values(), want);
  }
}

TEST(Add, ShapesMustAgree) {
  TestCtx ctx;
  TestTensor a(DType::f32, {4, 3}), b(DType::f32, {3, 4});
  EXPECT_THROW(add(ctx, a, a, b), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
