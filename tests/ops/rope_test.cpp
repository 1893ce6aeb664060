#include "src/ops/rope.h"

#include "tests/support/check_op.h"

namespace temper {
namespace {

constexpr AttentionShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 10};
constexpr int64_t kPositions = 50;

using RopeOp = void (*)(Ctx&, Tensor, CTensor, CTensor, CTensor, AttentionShape);

Values angles() { return uniform_values(kPositions * kShape.head_dim / 2, 3, -10.0, 10.0); }

Values run(RopeOp op, Ctx& c, DType dtype, const Values& qkv, const std::vector<int32_t>& positions) {
  Values cosine = angles(), sine = cosine;
  for (double& x : cosine) x = std::cos(x);
  for (double& x : sine) x = std::sin(x);
  const DType a = accumulate_dtype(dtype);
  const int64_t rows = static_cast<int64_t>(positions.size());
  TestTensor x(c, qkv, dtype, {rows, kShape.qkv_width()}), at(c, positions, {rows});
  TestTensor cosines(c, cosine, a, {kPositions, kShape.head_dim / 2}),
      sines(c, sine, a, {kPositions, kShape.head_dim / 2});
  op(c, x, at, cosines, sines, kShape);
  return x.values();
}

CPU_TEST(Rope, Gradient) {
  const std::vector<int32_t> positions{0, 7, 49};
  check_gradient(
      "rope", {normal_values(3 * kShape.qkv_width(), 1)},
      [&](Ctx& c, DType t, const Many& in) { return Many{run(rope_forward, c, t, in[0], positions)}; },
      [&](Ctx& c, DType t, const Many&, const Many& douts) {
        return Many{run(rope_backward, c, t, douts[0], positions)};
      });
}

TEST(Rope, TypesRows) {
  const int64_t rows = 300;
  const Values qkv = normal_values(rows * kShape.qkv_width(), 1);
  const std::vector<int32_t> positions = random_ids(rows, kPositions, 2);
  for (RopeOp op : {rope_forward, rope_backward}) {
    const auto whole = [&](Ctx& c, DType t, const Many& in) { return Many{run(op, c, t, in[0], positions)}; };
    check_dtypes("rope", {qkv}, whole);
    check_rows("rope", rows, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
      return Many{run(op, c, t, slice_rows(qkv, kShape.qkv_width(), begin, end),
                      {positions.begin() + begin, positions.begin() + end})};
    });
  }
}

CPU_TEST(Rope, Threads) {
  const Values qkv = normal_values(300 * kShape.qkv_width(), 1);
  const std::vector<int32_t> positions = random_ids(300, kPositions, 2);
  for (RopeOp op : {rope_forward, rope_backward})
    check_threads("rope", {qkv},
                  [&](Ctx& c, DType t, const Many& in) { return Many{run(op, c, t, in[0], positions)}; });
}

/// Shapes of real models and of none.
TEST(Rope, ForwardOfManyShapes) {
  for (const AttentionShape shape :
       {AttentionShape{4, 2, 16}, {3, 1, 24}, {32, 8, 128}, {14, 2, 64}, {8, 8, 256}}) {
    constexpr int64_t T = 11;
    const int64_t W = shape.qkv_width(), half = shape.head_dim / 2;
    const std::vector<int32_t> positions = random_ids(T, kPositions, 8);
    const Values cosine = uniform_values(kPositions * half, 4, -1, 1),
                 sine = uniform_values(kPositions * half, 5, -1, 1);
    const Values qkv = normal_values(T * W, 1);
    const auto turned = [&](Ctx& c, DType dtype, const Values& in, int64_t begin, int64_t end) {
      const DType a = accumulate_dtype(dtype);
      TestTensor x(c, in, dtype, {end - begin, W}),
          at(c, {positions.begin() + begin, positions.begin() + end}, {end - begin}),
          cosines(c, cosine, a, {kPositions, half}), sines(c, sine, a, {kPositions, half});
      rope_forward(c, x, at, cosines, sines, shape);
      return Many{x.values()};
    };
    check_dtypes(fmt::format("heads of {}", shape.head_dim), {qkv},
                 [&](Ctx& c, DType t, const Many& in) { return turned(c, t, in[0], 0, T); });
    check_rows(fmt::format("heads of {}", shape.head_dim), T,
               [&](Ctx& c, DType t, int64_t begin, int64_t end) {
                 return turned(c, t, slice_rows(qkv, W, begin, end), begin, end);
               });
  }
}

/// Pairs (i, i + dh/2), products rounded one by one, values untouched.
CPU_TEST(Rope, BitsFollowTheDefinition) {
  TestCtx ctx;
  const Values qkv = round_to(normal_values(kShape.qkv_width(), 5), DType::bf16);
  const Values got = run(rope_forward, ctx, DType::bf16, qkv, {13});
  const int64_t half = kShape.head_dim / 2;
  Values want = qkv;
  for (int64_t h = 0; h < kShape.q_heads + kShape.kv_heads; ++h)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = angles()[13 * half + i];
      const float c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
      const size_t low = h * 2 * half + i, high = low + half;
      const float a = static_cast<float>(qkv[low]), b = static_cast<float>(qkv[high]);
      const volatile float ac = a * c, bs = b * s, bc = b * c, as = a * s;
      want[low] = static_cast<float>(bf16(ac - bs));
      want[high] = static_cast<float>(bf16(bc + as));
    }
  expect_same_bits("row", got, want);
}

TEST(Rope, BackwardUndoesForward) {
  TestCtx ctx;
  for (DType dtype : kStorageTypes) {
    if (dtype == DType::bf16) continue;
    const Values qkv = round_to(normal_values(2 * kShape.qkv_width(), 6), dtype);
    const Values turned = run(rope_forward, ctx, dtype, qkv, {3, 48});
    expect_near("row", run(rope_backward, ctx, dtype, turned, {3, 48}), qkv,
                dtype == DType::f64 ? 1e-15 : 3e-7);
  }
}

CPU_TEST(Rope, PositionsOutsideTheTableAreRefused) {
  TestCtx ctx(2);
  const Values qkv = normal_values(2 * kShape.qkv_width(), 7);
  EXPECT_THROW(run(rope_forward, ctx, DType::f32, qkv, {0, kPositions}), Error);
  EXPECT_THROW(run(rope_backward, ctx, DType::f32, qkv, {-1, 0}), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
