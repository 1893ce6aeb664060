#include "src/ops/glu.h"

#include "kernels/cpu/canonical.h"
#include "src/ops/linear.h"
#include "tests/support/check_op.h"
#include "tests/support/normal_block.h"

namespace temper {
namespace {

Many forward(Ctx& c, DType dtype, const Many& in, int64_t rows) {
  const int64_t width = static_cast<int64_t>(in[0].size()) / rows;
  TestTensor gate_up(c, in[0], dtype, {rows, width}), a(c, dtype, {rows, width / 2});
  swiglu_forward(c, a, gate_up);
  return {a.values()};
}

Many backward(Ctx& c, DType dtype, const Values& in, const Values& upstream, int64_t rows) {
  const int64_t width = static_cast<int64_t>(in.size()) / rows;
  TestTensor gate_up(c, in, dtype, {rows, width}), da(c, upstream, dtype, {rows, width / 2}),
      out(c, dtype, {rows, width});
  swiglu_backward(c, out, da, gate_up);
  return {out.values()};
}

CPU_TEST(SwiGlu, Gradient) {
  check_gradient(
      "swiglu", {normal_values(3 * 34, 1, 2.0)},
      [](Ctx& c, DType t, const Many& in) { return forward(c, t, in, 3); },
      [](Ctx& c, DType t, const Many& in, const Many& douts) { return backward(c, t, in[0], douts[0], 3); });
}

TEST(SwiGlu, TypesRows) {
  for (int64_t width : {8, 36, 200, 3072})
    check_dtypes("forward", {normal_values(13 * 2 * width, 1, 4.0)},
                 [](Ctx& c, DType t, const Many& in) { return forward(c, t, in, 13); });
  const int64_t rows = 150, width = 200;
  const Values in = normal_values(rows * 2 * width, 2, 3.0);
  check_rows("forward", rows, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    return forward(c, t, {slice_rows(in, 2 * width, begin, end)}, end - begin);
  });
}

TEST(SwiGlu, BackwardTypesRows) {
  for (int64_t width : {1, 5, 8, 100, 3072, 4100})
    check_dtypes("backward", {normal_values(7 * 2 * width, 2, 3.0), normal_values(7 * width, 3)},
                 [](Ctx& c, DType t, const Many& in) { return backward(c, t, in[0], in[1], 7); });
  const int64_t rows = 150, width = 200;
  const Values in = normal_values(rows * 2 * width, 2, 3.0), upstream = normal_values(rows * width, 3);
  check_rows("backward", rows, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    return backward(c, t, slice_rows(in, 2 * width, begin, end), slice_rows(upstream, width, begin, end),
                    end - begin);
  });
}

CPU_TEST(SwiGlu, BackwardThreads) {
  const int64_t rows = 150, width = 200;
  const Many in{normal_values(rows * 2 * width, 2, 3.0), normal_values(rows * width, 3)};
  const auto whole = [&](Ctx& c, DType t, const Many& all) { return forward(c, t, {all[0]}, rows); };
  const auto gradient = [&](Ctx& c, DType t, const Many& all) {
    return backward(c, t, all[0], all[1], rows);
  };
  check_threads("forward", in, whole);
  check_threads("backward", in, gradient);
}

TEST(SwiGlu, BackwardInPlace) {
  TestCtx c;
  for (DType dtype : kStorageTypes)
    for (int64_t width : {1, 19, 64}) {
      const Values in = normal_values(3 * 2 * width, 1, 3.0), upstream = normal_values(3 * width, 2);
      TestTensor gate_up(c, in, dtype, {3, 2 * width}), da(c, upstream, dtype, {3, width});
      swiglu_backward(c, gate_up, da, gate_up);
      expect_same_bits("in place", gate_up.values(), backward(c, dtype, in, upstream, 3)[0]);
    }
}

/// The product that ends in its SwiGLU has the bits of the two steps, for any number of rows.
TEST(SwiGlu, ProductAndSwigluInOneCall) {
  constexpr int64_t kMost = 200;
  using Sizes = std::vector<std::pair<int64_t, int64_t>>;
  const Sizes products = kTestDevice == Device::cuda
                             ? Sizes{{3072, 1024}, {12288, 4096}, {4864, 896}, {64, 128},
                                     {1000, 192},  {520, 320},    {77, 64},    {17, 24}}
                             : Sizes{{64, 128}, {77, 64}, {17, 24}, {5, 333}};
  const NormalBlock block;
  TestCtx ctx(2);
  Ctx& c = ctx;
  for (const auto& [F, K] : products)
    for (DType dtype : kStorageTypes)
      for (const bool with_bias : {false, true}) {
        ArenaScope scope(c.scratch);
        const Tensor x = c.scratch.make({kMost, K}, dtype), w = c.scratch.make({2 * F, K}, dtype),
                     b = c.scratch.make({2 * F}, dtype), both = c.scratch.make({kMost, 2 * F}, dtype),
                     want = c.scratch.make({kMost, F}, dtype), got = c.scratch.make({kMost, F}, dtype);
        block.fill(c.device, x, 1, 0, 1);
        block.fill(c.device, w, 1 / std::sqrt(static_cast<double>(K)), 0, 2);
        block.fill(c.device, b, 1, 0, 3);
        const CTensor bias = with_bias ? CTensor(b) : CTensor{};
        linear_forward(c, both, x, w, bias);
        swiglu_forward(c, want, both);
        const std::vector<char> all = bytes_of(c, want);
        const int64_t row = F * dtype_size(dtype);
        for (int64_t M : {1, 3, 8, 17, 33, 64, 65, 200}) {
          device::fill(c.lane, got.raw(), 0xff, got.bytes());
          linear_swiglu_forward(c, rows(got, 0, M), rows(CTensor(x), kMost - M, kMost), w, bias);
          const std::vector<char> some = bytes_of(c, rows(CTensor(got), 0, M));
          EXPECT_EQ(std::memcmp(some.data(), all.data() + (kMost - M) * row, some.size()), 0)
              << M << " rows, " << F << " x " << K << " " << dtype_name(dtype)
              << (with_bias ? " with bias" : "");
        }
      }
}

/// The vector loop of the kernel gives the bits of the scalar definition, for any width (whole vectors and
/// rest).
CPU_TEST(SwiGlu, BitsFollowTheDefinition) {
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

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
