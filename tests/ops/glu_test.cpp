#include "src/ops/glu.h"

#include "kernels/cpu/canonical.h"
#include "src/ops/linear.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

Many forward(Ctx& c, DType dtype, const Many& in, int64_t rows) {
  const int64_t width = static_cast<int64_t>(in[0].size()) / rows;
  TestTensor gate_up(in[0], dtype, {rows, width}), a(dtype, {rows, width / 2});
  swiglu_forward(c, a, gate_up);
  return {a.values()};
}

Many backward(Ctx& c, DType dtype, const Values& in, const Values& upstream, int64_t rows) {
  const int64_t width = static_cast<int64_t>(in.size()) / rows;
  TestTensor gate_up(in, dtype, {rows, width}), da(upstream, dtype, {rows, width / 2}),
      out(dtype, {rows, width});
  swiglu_backward(c, out, da, gate_up);
  return {out.values()};
}

TEST(SwiGlu, Gradient) {
  check_gradient(
      "swiglu", {normal_values(3 * 34, 1, 2.0)},
      [](Ctx& c, DType t, const Many& in) { return forward(c, t, in, 3); },
      [](Ctx& c, DType t, const Many& in, const Many& douts) { return backward(c, t, in[0], douts[0], 3); });
}

TEST(SwiGlu, TypesThreadsRows) {
  const int64_t rows = 150, width = 200;
  const Many in{normal_values(rows * 2 * width, 2, 3.0), normal_values(rows * width, 3)};
  const auto whole = [&](Ctx& c, DType t, const Many& all) { return forward(c, t, {all[0]}, rows); };
  const auto gradient = [&](Ctx& c, DType t, const Many& all) {
    return backward(c, t, all[0], all[1], rows);
  };
  check_dtypes("forward", in, whole);
  check_dtypes("backward", in, gradient);
  check_threads("forward", in, whole);
  check_threads("backward", in, gradient);
  check_rows("forward", rows, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    return forward(c, t, {slice_rows(in[0], 2 * width, begin, end)}, end - begin);
  });
}

TEST(SwiGlu, BackwardInPlace) {
  TestCtx c;
  for (DType dtype : kStorageTypes)
    for (int64_t width : {1, 19, 64}) {
      const Values in = normal_values(3 * 2 * width, 1, 3.0), upstream = normal_values(3 * width, 2);
      TestTensor gate_up(in, dtype, {3, 2 * width}), da(upstream, dtype, {3, width});
      swiglu_backward(c, gate_up, da, gate_up);
      expect_same_bits("in place", gate_up.values(), backward(c, dtype, in, upstream, 3)[0]);
    }
}

TEST(SwiGlu, ProductAndSwigluInOneCall) {
  constexpr int64_t T = 5, K = 24, F = 17;
  TestCtx c;
  for (DType dtype : kStorageTypes)
    for (const bool with_bias : {false, true}) {
      TestTensor x(normal_values(T * K, 1), dtype, {T, K}), w(normal_values(2 * F * K, 2), dtype, {2 * F, K}),
          b(normal_values(2 * F, 3), dtype, {2 * F}), both(dtype, {T, 2 * F}), want(dtype, {T, F}),
          got(dtype, {T, F});
      const CTensor bias = with_bias ? CTensor(b) : CTensor{};
      linear_forward(c, both, x, w, bias);
      swiglu_forward(c, want, both);
      linear_swiglu_forward(c, got, x, w, bias);
      expect_same_bits("one call", got.values(), want.values());
    }
}

/// The vector loop of the kernel gives the bits of the scalar definition, for any width (whole vectors and
/// rest).
TEST(SwiGlu, BitsFollowTheDefinition) {
  TestCtx ctx;
  for (int64_t width : {1, 3, 16, 47, 128}) {
    const Values in = round_to(normal_values(2 * width, 4, 20.0), DType::bf16);
    Values want;
    for (int64_t i = 0; i < width; ++i) {
      volatile float g = static_cast<float>(in[i]);
      const float gate = g, up = static_cast<float>(in[width + i]);
      want.push_back(static_cast<float>(bf16((gate / (1.0f + cpu::exponential(-gate))) * up)));
    }
    expect_same_bits("width " + std::to_string(width), forward(ctx, DType::bf16, {in}, 1)[0], want);
  }
}

TEST(SwiGlu, LargeGatesStayFinite) {
  TestCtx ctx;
  for (double g : {-1e30, -200.0, -89.0, 89.0, 200.0, 1e30}) {
    const double want = g > 0 ? 2.0 * g : 0.0;
    expect_near("a", forward(ctx, DType::f32, {{g, 2.0}}, 1)[0], {want}, 1e-6, 1e-6);
    expect_near("gradient", backward(ctx, DType::f32, {g, 2.0}, {1.0}, 1)[0],
                {g > 0 ? 2.0 : 0.0, g > 0 ? g : 0.0}, 1e-6, 1e-6);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
