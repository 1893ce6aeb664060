#include "src/ops/adapters/adapter.h"

#include <array>
#include <tuple>

#include "src/ops/glu.h"
#include "src/ops/linear.h"
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

/// A gradient of what adapters have, of more than one part where the backend adds parts.
struct Summed {
  int64_t tokens, unit, rank;
  AdapterBlocks blocks() const {
    return {.count = 2, .to = {0, 3 * unit}, .from = {0, 2 * unit}, .rows = {2 * unit, unit}};
  }
};
constexpr Summed kSummed[] = {{1, 3, 5},     {72, 8, 8},     {2048, 24, 32},
                              {2049, 8, 16}, {4504, 80, 48}, {130, 16, 144}};

/// Tokens of a chain: a GPU has parts of 2,048 where copies of 16 bytes can bring them
/// (kernels/cuda/NUMERICS.md).
int64_t chain_of(const Ctx& c, DType dtype, int64_t columns, int64_t width) {
  const bool parts =
      c.device == Device::cuda && dtype == DType::bf16 && columns % 8 == 0 && width % 8 == 0 && width <= 128;
  return parts ? 2048 : int64_t{1} << 40;
}

/// dw = sum_t dy[t, n] x[t, k] by chains of so many tokens, added ascending in fp32 (on the CPU there is
/// one).
Values chains(Ctx& c, const CTensor& dy, const CTensor& x, int64_t tokens) {
  Values sum;
  for (int64_t at = 0; at < dy.dim(0); at += tokens) {
    const int64_t end = std::min(dy.dim(0), at + tokens);
    TestTensor dw(c, accumulate_dtype(dy.dtype), {dy.dim(1), x.dim(1)});
    linear_backward_weight(c, dw, rows(dy, at, end), rows(x, at, end), GradWrite::first);
    const Values part = dw.values();
    for (size_t i = 0; i < part.size(); ++i)
      if (at == 0)
        sum.push_back(part[i]);
      else
        sum[i] = round_to(sum[i] + part[i], DType::f32);
  }
  return sum;
}

/// The first write, or what is added to `before`.
double written(GradWrite write, double before, double term, DType dtype) {
  return write == GradWrite::add ? round_to(before + term, dtype) : term;
}

TEST(AdapterBackwardB, AddsTheBlocksOfTheProduct) {
  for (const DType dtype : kStorageTypes)
    for (const Summed& of : kSummed)
      for (const GradWrite write : {GradWrite::first, GradWrite::add}) {
        TestCtx c(2);
        const AdapterBlocks blocks = of.blocks();
        const int64_t T = of.tokens, N = 4 * of.unit, R = 2 * of.rank, M = 3 * of.unit;
        const DType sums = accumulate_dtype(dtype);
        const Values before = round_to(normal_values(M * of.rank, 3), sums);
        TestTensor dy(c, normal_values(T * N, 1), dtype, {T, N}),
            u(c, normal_values(T * R, 2), dtype, {T, R}), db(c, before, sums, {M, of.rank});
        adapter_backward_b(c, db, dy, u, 0.3, blocks, write);
        const Values dw = chains(c, dy, u, chain_of(c, dtype, of.unit, of.rank));
        const double scale = round_to(0.3, sums);
        Values want;
        for (int i = 0; i < blocks.count; ++i)
          for (int64_t j = 0; j < blocks.rows[i]; ++j)
            for (int64_t k = 0; k < of.rank; ++k) {
              const double term =
                  round_to(scale * dw[static_cast<size_t>((blocks.to[i] + j) * R + i * of.rank + k)], sums);
              want.push_back(written(write, before[want.size()], term, sums));
            }
        expect_same_bits(fmt::format("dB of {} tokens, {}", T, dtype_name(dtype)), db.values(), want);
      }
}

TEST(AdapterBackwardA, AddsTheProduct) {
  for (const DType dtype : kStorageTypes)
    for (const Summed& of : kSummed)
      for (const GradWrite write : {GradWrite::first, GradWrite::add}) {
        TestCtx c(2);
        const int64_t T = of.tokens, K = 3 * of.unit;
        const DType sums = accumulate_dtype(dtype);
        const Values before = round_to(normal_values(of.rank * K, 3), sums);
        TestTensor x(c, normal_values(T * K, 1), dtype, {T, K}),
            du(c, normal_values(T * of.rank, 2), dtype, {T, of.rank}), da(c, before, sums, {of.rank, K});
        adapter_backward_a(c, da, du, x, write);
        const int64_t tokens = chain_of(c, dtype, K, of.rank);
        TestTensor whole(c, before, sums, {of.rank, K});
        linear_backward_weight(c, whole, du, x, write);
        Values want = tokens < T ? chains(c, du, x, tokens) : whole.values();
        for (size_t i = 0; tokens < T && i < want.size(); ++i)
          want[i] = written(write, before[i], want[i], sums);
        expect_same_bits(fmt::format("dA of {} tokens, {}", T, dtype_name(dtype)), da.values(), want);
      }
}

/// A product that is added to something: `rows` of tokens; blocks of 2 and 1 times `unit` outputs of 4.
struct Added {
  int64_t rows, unit, rank;

  AdapterBlocks blocks() const {
    return {.count = 2, .to = {0, 3 * unit}, .from = {0, 2 * unit}, .rows = {2 * unit, unit}};
  }
};
constexpr Added kAdded[] = {{1, 3, 5}, {7, 24, 32}, {64, 16, 8}, {65, 24, 32}, {130, 3, 5}, {300, 40, 144}};

/// round(fma(scale, z, y)), z of y's shape.
Values fused(const Values& y, const Values& z, float scale, DType dtype) {
  Values sum;
  for (size_t i = 0; i < y.size(); ++i)
    sum.push_back(round_to(std::fma(scale, static_cast<float>(z[i]), static_cast<float>(y[i])), dtype));
  return sum;
}

/// Outputs are rounded once, not so in a type that is its own accumulate type; those of no block stay.
TEST(AdapterForward, AddsTheProductOfTheWholeWeights) {
  for (const auto& [dtype, sum] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
    for (const Added& of : kAdded) {
      TestCtx c(2);
      const int64_t T = of.rows, N = 4 * of.unit, R = 2 * of.rank;
      const Values before = round_to(normal_values(T * N, 4), sum);
      TestTensor u(c, normal_values(T * R, 5), dtype, {T, R}), y(c, before, sum, {T, N}),
          b(c, normal_values(3 * of.unit * of.rank, 6), dtype, {3 * of.unit, of.rank}), w(c, dtype, {N, R}),
          z(c, DType::f32, {T, N});
      adapter_weights(c, w, b, of.blocks());
      linear_forward(c, z, u, w, {});
      adapter_forward(c, y, {u, b, 0.7, of.blocks()});
      expect_same_bits(fmt::format("{} rows, {}", T, dtype_name(sum)), y.values(),
                       fused(before, z.values(), 0.7f, sum));
    }
}

TEST(AdapterBackwardInput, AddsTheProduct) {
  for (const auto& [dtype, sum] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
    for (const Added& of : kAdded) {
      TestCtx c(2);
      const int64_t T = of.rows, K = 4 * of.unit, R = of.rank;
      const Values before = round_to(normal_values(T * K, 4), sum);
      TestTensor du(c, normal_values(T * R, 5), dtype, {T, R}), dx(c, before, sum, {T, K}),
          a(c, normal_values(R * K, 6), dtype, {R, K}), z(c, DType::f32, {T, K});
      linear_backward_input(c, z, du, a);
      adapter_backward_input(c, dx, du, a);
      expect_same_bits(fmt::format("{} rows, {}", T, dtype_name(sum)), dx.values(),
                       fused(before, z.values(), 1, sum));
    }
}

/// Both modules have adapters, or up alone.
TEST(AdapterSwiglu, HasTheBitsOfItsSteps) {
  for (const DType dtype : kStorageTypes)
    for (const auto& [T, F, rank, both] : {std::tuple<int64_t, int64_t, int64_t, bool>{1, 24, 8, true},
                                           {33, 72, 32, true},
                                           {64, 40, 5, false},
                                           {70, 136, 16, true},
                                           {150, 20, 3, false}}) {
      TestCtx c(2);
      const AdapterBlocks blocks =
          both ? AdapterBlocks{2, {0, F}, {0, F}, {F, F}} : AdapterBlocks{1, {F}, {0}, {F}};
      const int64_t R = blocks.count * rank, M = blocks.count * F;
      const Values before = round_to(normal_values(T * 2 * F, 1), dtype);
      TestTensor u(c, normal_values(T * R, 3), dtype, {T, R}),
          b(c, normal_values(M * rank, 4), dtype, {M, rank}), y(c, before, dtype, {T, 2 * F}),
          want(c, dtype, {T, F}), a(c, dtype, {T, F}), gate_up(c, before, dtype, {T, 2 * F});
      const LowProduct low{u, b, 0.7, blocks};
      adapter_forward(c, y, low);
      swiglu_forward(c, want, y);
      adapter_swiglu_forward(c, a, gate_up, low);
      expect_same_bits("SwiGLU", a.values(), want.values());
      expect_same_bits("gate and up", gate_up.values(), before);
      TestTensor again(c, dtype, {T, F});
      adapter_swiglu_forward_kept(c, again, gate_up, low);
      expect_same_bits("SwiGLU beside what is kept", again.values(), want.values());
      expect_same_bits("what is kept", gate_up.values(), y.values());
    }
}

/// The gradient of gate and up apart from them, and in their memory.
TEST(AdapterSwigluBackward, HasTheBitsOfItsSteps) {
  for (const DType dtype : kStorageTypes)
    for (const auto& [T, F, rank] : {std::array<int64_t, 3>{1, 24, 8},
                                     {33, 72, 32},
                                     {64, 40, 5},
                                     {70, 136, 16},
                                     {150, 20, 3},
                                     {140, 64, 144}}) {
      TestCtx c(2);
      const Values upstream = normal_values(T * F, 1);
      TestTensor du(c, normal_values(T * rank, 2), dtype, {T, rank}),
          a(c, normal_values(rank * F, 3), dtype, {rank, F}),
          gate_up(c, normal_values(T * 2 * F, 4), dtype, {T, 2 * F}), da(c, upstream, dtype, {T, F}),
          da_again(c, upstream, dtype, {T, F}), da_too(c, upstream, dtype, {T, F}),
          want(c, dtype, {T, 2 * F}), apart(c, dtype, {T, 2 * F});
      adapter_backward_input(c, da, du, a);
      swiglu_backward(c, want, da, gate_up);
      adapter_swiglu_backward(c, apart, da_again, du, a, gate_up);
      expect_same_bits(fmt::format("{} x {}", T, F), apart.values(), want.values());
      adapter_swiglu_backward(c, gate_up, da_too, du, a, gate_up);
      expect_same_bits(fmt::format("{} x {} in place", T, F), gate_up.values(), want.values());
    }
}

TEST(AdapterBackwardLow, RoundsTheScaledProduct) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [T, N, R] :
         {std::array<int64_t, 3>{1, 24, 5}, {70, 96, 32}, {300, 72, 96}, {129, 36, 6}}) {
      TestCtx c(3);
      TestTensor dy(c, normal_values(T * N, 5), dtype, {T, N}), v(c, normal_values(N * R, 6), dtype, {N, R}),
          z(c, DType::f32, {T, R}), du(c, dtype, {T, R});
      linear_backward_input(c, z, dy, v);
      adapter_backward_low(c, du, dy, v, 0.7);
      Values want;
      for (const double zi : z.values())
        want.push_back(round_to(static_cast<double>(0.7f * static_cast<float>(zi)), dtype));
      expect_same_bits(fmt::format("{} rows", T), du.values(), want);
    }
}

/// Decode and more rows, outputs in tiles of every height, a second product of less and more than a tile.
TEST(LinearPair, HasTheBitsOfTwoProducts) {
  for (const DType dtype : kStorageTypes)
    for (const auto& [T, N, R, K] : {std::array<int64_t, 4>{1, 48, 8, 64},
                                     {64, 1072, 32, 192},
                                     {33, 512, 96, 64},
                                     {17, 2120, 96, 128},
                                     {2, 4096, 32, 64},
                                     {2, 6208, 96, 64},
                                     {2, 7000, 16, 64},
                                     {2, 13000, 200, 64},
                                     {70, 96, 32, 64},
                                     {3, 12, 5, 10}}) {
      TestCtx c(2);
      TestTensor x(c, normal_values(T * K, 1), dtype, {T, K}), w(c, normal_values(N * K, 2), dtype, {N, K}),
          bias(c, normal_values(N, 3), dtype, {N}), a(c, normal_values(R * K, 4), dtype, {R, K}),
          y(c, dtype, {T, N}), u(c, dtype, {T, R}), want_y(c, dtype, {T, N}), want_u(c, dtype, {T, R});
      linear_pair_forward(c, y, u, x, w, bias, a);
      linear_forward(c, want_y, x, w, bias);
      linear_forward(c, want_u, x, a, {});
      expect_same_bits(fmt::format("{} x {} x {}", T, N, K), y.values(), want_y.values());
      expect_same_bits(fmt::format("{} x {} x {}", T, R, K), u.values(), want_u.values());
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
  EXPECT_THROW(adapter_forward(c, w, {half, b, 1, kBlocks}), Error);
  EXPECT_THROW(adapter_forward(c, w, {narrow, b, 1, kBlocks}), Error);
  EXPECT_THROW(adapter_swiglu_forward(c, narrow, w, {w, b, 1, kBlocks}), Error);
  EXPECT_THROW(adapter_swiglu_forward_kept(c, narrow, w, {w, b, 1, kBlocks}), Error);
  EXPECT_THROW(adapter_backward_input(c, w, b, narrow), Error);
  EXPECT_THROW(adapter_swiglu_backward(c, w, narrow, b, narrow, w), Error);
  EXPECT_THROW(adapter_backward_a(c, b, w, narrow, GradWrite::add), Error);
  EXPECT_THROW(adapter_backward_b(c, half, w, w, 1, kBlocks, GradWrite::add), Error);
  EXPECT_THROW(linear_pair_forward(c, w, narrow, half, half, {}, half), Error);
  EXPECT_THROW(adapter_backward_low(c, narrow, w, half, 1), Error);
  EXPECT_THROW(adapter_backward_low(c, narrow, w, narrow, 1), Error);
}

CPU_TEST(AdapterForward, Threads) {
  check_threads(
      "adapter_forward", {normal_values(50 * 96, 1), normal_values(50 * 64, 2), normal_values(96 * 64, 3)},
      [](Ctx& c, DType dtype, const Many& in) {
        TestTensor y(c, in[0], dtype, {50, 96}), u(c, in[1], dtype, {50, 64}), b(c, in[2], dtype, {96, 64});
        adapter_forward(c, y, {u, b, 0.3, {1, {0}, {0}, {96}}});
        adapter_backward_input(c, u, y, b);
        return Many{y.values(), u.values()};
      });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
